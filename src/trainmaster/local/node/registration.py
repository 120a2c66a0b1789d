"""The node's Node object, and the Lease that shows it is alive."""

import asyncio
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from trainmaster.core.errors import AlreadyExists, BadConfig, Forbidden, NotFound, Trainmaster, Unreachable
from trainmaster.core.ids import LEASE, Key
from trainmaster.local.gpu import GPU
from trainmaster.local.node.pod import LOOPBACK, Object
from trainmaster.local.node.resource import NODE
from trainmaster.local.node.taint import TAINT, taints_with
from trainmaster.runtime.backoff import REGISTER_NODE, Backoff
from trainmaster.runtime.cluster import Cluster

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
STATUS_EVERY = 30
"""The Node's status is written with every so many renewals: every 5 minutes, as a kubelet does without changes."""
MAX_PODS = "1000"
TRIES = 5
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

log = structlog.get_logger(__name__)


def capacity(gpus: int = 0) -> dict[str, str]:
    """The resources of this machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    room = {"cpu": str(os.cpu_count() or 1), "memory": f"{pages}Ki", "pods": MAX_PODS}
    return room | ({GPU: str(gpus)} if gpus else {})


def node_body(name: str, room: Object, port: int, now: datetime) -> Object:
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    arch = _ARCHITECTURES.get(platform.machine(), platform.machine())
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "trainmaster node is posting ready status",
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": sys.platform, "kubernetes.io/arch": arch}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [ready],
            # For logs, API servers prefer the host name: it must resolve.
            "addresses": [
                {"type": "InternalIP", "address": LOOPBACK},
                {"type": "Hostname", "address": "localhost"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": _info(arch),
        },
    }


def _info(arch: str) -> Object:
    machine = Path("/etc/machine-id")
    identity = machine.read_text().strip() if machine.is_file() else ""
    return {
        "machineID": identity,
        "systemUUID": identity,
        "bootID": "",
        "kernelVersion": platform.release(),
        "osImage": platform.system(),
        "containerRuntimeVersion": "process://1",
        "kubeletVersion": "trainmaster",
        "kubeProxyVersion": "",
        "operatingSystem": sys.platform,
        "architecture": arch,
    }


class Registration:
    def __init__(self, cluster: Cluster, name: str, room: Object, port: int, *, is_tainted: bool) -> None:
        self._cluster = cluster
        self._name = name
        self._room = room
        self._port = port
        self._is_tainted = is_tainted
        self._uid = ""

    async def register(self) -> None:
        """Creates or updates the Node; retries while the API server is starting."""
        backoff = Backoff(*REGISTER_NODE)
        for attempt in range(1, TRIES + 1):
            try:
                await self._write()
            except Unreachable as error:
                if attempt == TRIES:
                    raise
                log.warning("cannot register the node, retrying", node=self._name, because=str(error))
                await asyncio.sleep(backoff.delay(attempt))
            else:
                return

    async def _write(self) -> None:
        body = node_body(self._name, self._room, self._port, datetime.now(UTC))
        body["spec"] = {"taints": taints_with([], is_tainted=self._is_tainted)}
        key = Key("", self._name)
        try:
            written = await self._cluster.create(NODE, "", msgspec.json.encode(body))
        except AlreadyExists:
            labels = msgspec.json.encode({"metadata": {"labels": body["metadata"]["labels"]}})
            written = await self._cluster.patch(NODE, key, labels)
            await self._taint(key)
        self._uid = written.uid
        room = {GPU: None, **self._room}  # a Node from before may have had some
        status = {**body["status"], "capacity": room, "allocatable": room}
        await self._cluster.patch(NODE, key, msgspec.json.encode({"status": status}), subresource="status")

    async def _taint(self, key: Key) -> None:
        """A Node that exists may be from before, or have taints of others."""
        node = msgspec.json.decode(await self._cluster.get(NODE, key))
        before = node["spec"].get("taints") or []
        if (TAINT in before) == self._is_tainted:
            return
        after = taints_with(before, is_tainted=self._is_tainted)
        metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}  # others change taints, too
        try:
            await self._cluster.patch(NODE, key, msgspec.json.encode({"metadata": metadata, "spec": {"taints": after}}))
        except Forbidden as error:
            change = f"{TAINT['key']}:{TAINT['effect']}{'' if self._is_tainted else '-'}"
            raise BadConfig(
                f"node {self._name} exists and may not change its own taints; an administrator can: "
                f"kubectl taint node {self._name} {change}, or kubectl delete node {self._name}"
            ) from error

    async def keep_alive(self) -> None:
        """Renews the lease until cancelled. A failure is logged once, and once more when it is over."""
        renewals = 0
        is_well = True
        while True:
            try:
                await self._renew()
                if renewals and renewals % STATUS_EVERY == 0:
                    await self._write()
                is_well = True
            except Trainmaster as error:
                if is_well:
                    log.warning("cannot renew the node's lease, retrying", node=self._name, because=str(error))
                is_well = False
            renewals += 1
            await asyncio.sleep(RENEW_SECONDS)

    async def _renew(self) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment}
        try:
            await self._cluster.patch(LEASE, Key(LEASE_NAMESPACE, self._name), msgspec.json.encode({"spec": spec}))
        except NotFound:
            await self._cluster.create(LEASE, LEASE_NAMESPACE, msgspec.json.encode(self._lease(spec)))

    def _lease(self, spec: Object) -> Object:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._uid}
        metadata = {"name": self._name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
