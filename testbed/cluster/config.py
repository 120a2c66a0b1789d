"""The configuration files of a node's programs."""

import json
from pathlib import Path
from typing import Any

from testbed.certificate import Pair
from testbed.cluster import cgroup
from testbed.cluster.build import CNI_PLUGINS
from testbed.cluster.network import DNS_ADDRESS, MTU, PODS, Place

PAUSE_IMAGE = "docker.io/trainmaster-test/pause:1"
SOCKET = "/run/containerd/containerd.sock"

LEASE_SECONDS = 8
"""A node that is silent for so long is NotReady. Kubernetes' default is 40 s and more, which makes tests long."""


def kubelet(place: Place, ca: Path, server: Pair, resolver: Path) -> dict[str, Any]:
    """What kubelet reads."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(ca)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(server.certificate),
        "tlsPrivateKeyFile": str(server.key),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup.path_of(place.name),
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolver),
        "failSwapOn": False,
        # The disk and the memory are those of the machine, and shared: little is a reason to evict.
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 99,
        "imageGCLowThresholdPercent": 98,
        "serializeImagePulls": False,
        "maxPods": 200,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
    }


def proxy(kubeconfig: Path) -> dict[str, Any]:
    """What kube-proxy reads."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": "nftables",
        "clusterCIDR": str(PODS),
        # These would change settings of the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def cni(place: Place) -> str:
    """How pods get their addresses: a cable to the node, and routes between nodes."""
    plugins = [
        {
            "type": "ptp",
            "mtu": MTU,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": place.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/var/lib/cni/networks",
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins})


def containerd(cni_folder: Path, runc: str) -> str:
    """What containerd reads."""
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{SOCKET}"

[plugins.'io.containerd.internal.v1.opt']
path = "/var/lib/containerd/opt"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
# A machine may not let us lower oom_score_adj; then no sandbox would start.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{CNI_PLUGINS}"]
conf_dir = "{cni_folder}"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""
