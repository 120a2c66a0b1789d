"""What a node runs, built from pinned Go modules into the user's cache, and what it needs of the machine."""

import os
import shutil
import sys
from pathlib import Path

from testbed.build import PLAIN, STAMPED, Binary, Builder, Site, user_site

CONTAINERD = "v2.3.7"
CNI_PLUGINS = Path("/usr/lib/cni")

_CONTAINERD_MODULE = "github.com/containerd/containerd/v2"
_CONTAINERD_FLAGS = f"{PLAIN} -X {_CONTAINERD_MODULE}/version.Version={CONTAINERD}"
# Snapshotters that a node does not use; they need C libraries or tools.
_SMALL = "no_btrfs no_devmapper no_zfs"

BINARIES = (
    Binary("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", STAMPED, "2 min"),
    Binary("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy", STAMPED, "30 s"),
    Binary("containerd", "containerd", f"{_CONTAINERD_MODULE}/cmd/containerd", _CONTAINERD_FLAGS, "3 min", tags=_SMALL),
    Binary(
        "containerd-shim-runc-v2",
        "containerd",
        f"{_CONTAINERD_MODULE}/cmd/containerd-shim-runc-v2",
        _CONTAINERD_FLAGS,
        "10 s",
    ),
    Binary("ctr", "containerd", f"{_CONTAINERD_MODULE}/cmd/ctr", _CONTAINERD_FLAGS, "20 s"),
    Binary("coredns", "coredns", ".", PLAIN, "3 min"),
    Binary("pause", "pause", ".", PLAIN, "5 s"),
)

# What is taken from Debian: a command or a file, and the package that has it.
TOOLS = (
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("mount", "mount"),
    ("sysctl", "procps"),
    ("mmdebstrap", "mmdebstrap"),
    (str(CNI_PLUGINS / "ptp"), "containernetworking-plugins"),
)


class NotPossible(Exception):
    """This machine or this user cannot run a cluster; the message says what is missing."""


def site() -> Site:
    """Where the binaries of a node are built."""
    modules = Path(__file__).with_name("modules")
    return Site(user_site().cache, modules, binaries=BINARIES, target="cluster")


def lacking(search: str | None = None) -> list[str]:
    """The Debian packages that are to be installed first; `search` is a PATH."""
    search = search or f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return sorted({package for tool, package in TOOLS if shutil.which(tool, path=search) is None})


def require(packages: list[str] | None = None, *, uid: int | None = None, platform: str = sys.platform) -> None:
    """Raise NotPossible unless a cluster can be started here."""
    if platform != "linux":
        raise NotPossible(f"a cluster of real nodes needs the namespaces of Linux, and this is {platform}")
    if (os.geteuid() if uid is None else uid) != 0:
        raise NotPossible("a cluster of real nodes needs root: for network namespaces, mounts and cgroups")
    packages = lacking() if packages is None else packages
    if packages:
        raise NotPossible(
            f"these Debian packages are missing: apt-get install --no-install-recommends {' '.join(packages)}"
        )


def binaries() -> Path:
    """Build what is missing and answer the folder."""
    return Builder(site()).build()
