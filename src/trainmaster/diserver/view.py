"""The view of pods for di-server: that of the operator, with addresses and restart counts."""

from datetime import datetime

import msgspec

from trainmaster.core.ids import Key
from trainmaster.core.view import Codec, ContainerView, OwnerView, PodView


class CallerPod(PodView, frozen=True):
    ips: tuple[str, ...] = ()
    restarts: tuple[tuple[str, int], ...] = ()
    """Restart counts, by container, of containers that were restarted."""
    host_network: bool = False
    """Other pods may have the same addresses."""

    @property
    def places(self) -> tuple[str, ...]:
        """By which its requests are recognised: addresses, and the uid where pods share one."""
        return *self.ips, self.uid

    def is_between(self, container: str) -> bool:
        """The last known process of the container has ended. A request from this pod comes from the next process, which
        the kubelet reports about a second later."""
        main = self.container(container)
        return main is not None and (main.exit_code is not None or (bool(main.waiting) and main.last is not None))

    def incarnation(self, container: str) -> str:
        """Identifies one process of this container: it changes with each restart."""
        restarts = dict(self.restarts).get(container)
        return f"{self.uid}/{restarts}" if restarts else self.uid


class _Owner(msgspec.Struct, rename="camel", gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Terminated(msgspec.Struct, rename="camel", gc=False):
    exit_code: int = 0


class _Waiting(msgspec.Struct, gc=False):
    reason: str = ""


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _State | None = None
    last_state: _State | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    restart_policy: str = "Always"
    host_network: bool = False


class _Ip(msgspec.Struct, gc=False):
    ip: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    reason: str = ""
    pod_ips: list[_Ip] | None = msgspec.field(name="podIPs", default=None)
    container_statuses: list[_Container] | None = msgspec.field(name="containerStatuses", default=None)


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def _slim(wire: _Pod) -> CallerPod:
    meta, status = wire.metadata, wire.status
    owners = [o for o in meta.owner_references or () if o.controller]
    containers = status.container_statuses or ()
    return CallerPod(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        owner=OwnerView(owners[0].api_version, owners[0].kind, owners[0].name, owners[0].uid) if owners else None,
        deleting=meta.deletion_timestamp is not None,
        labels=meta.labels or {},
        node="",
        restart_policy=wire.spec.restart_policy,
        phase=status.phase,
        reason=status.reason,
        message="",
        unschedulable="",
        containers=tuple(_container(c) for c in containers),
        ips=tuple(entry.ip for entry in status.pod_ips or ()),
        restarts=tuple((c.name, c.restart_count) for c in containers if c.restart_count),
        host_network=wire.spec.host_network,
    )


def _container(wire: _Container) -> ContainerView:
    waiting = wire.state.waiting if wire.state else None
    return ContainerView(
        wire.name,
        waiting=(waiting.reason or "Waiting") if waiting else "",
        exit_code=_exit_code(wire.state),
        last=None if (code := _exit_code(wire.last_state)) is None else ContainerView(wire.name, exit_code=code),
    )


def _exit_code(state: _State | None) -> int | None:
    return state.terminated.exit_code if state and state.terminated else None


CALLER_POD_CODEC: Codec[CallerPod] = Codec(_Pod, _slim)
_POD = msgspec.json.Decoder(_Pod)


def read_pod(body: bytes) -> CallerPod:
    return _slim(_POD.decode(body))
