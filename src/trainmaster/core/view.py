"""Slim views: the part of an object that decisions need. The stores hold nothing else.

A pod on the wire has about 6 KB; its view has less than 2 KB and decodes 12 times faster than a dict.
``Codec`` decodes list pages and watch lines into views. Enumerations of the server (phases, reasons) stay ``str``:
an unknown value must not stop a watch.

Whoever may create a ConfigMap or a job decides how large it is. So the size of each view is bounded, whatever the size
of its object, and objects of others are dropped while they are decoded (``Codec.only``).
"""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from sys import intern
from typing import Any, Generic, TypeVar

import msgspec

from trainmaster.core.digest import digests
from trainmaster.core.ids import Key, Resource
from trainmaster.core.job_size import size_error
from trainmaster.core.nesting import SCANNED, TOO_DEEP, elements, members, prune, without_spec
from trainmaster.core.plain import plain
from trainmaster.core.quantity import amount_of

OUT_OF_MEMORY = "OOMKilled"
"""The reason of a container that was killed at its memory limit."""

V = TypeVar("V", bound="PodView | ServiceView | ChildView | CandidateView | JobView | NodeView | LeaseView")
W = TypeVar("W")

LONGEST_LINE = 200
"""Characters kept of one line of a termination message, which may have 4 KB."""
OUTPUT_LINES = 10
OUTPUT_BYTES = 1024
"""The most that is kept of the termination message of a container that failed: its last lines."""
VIEW_BYTES = 64 * 1024
"""The most that a view may have, as JSON. An object whose view is larger is left out. Jobs have another limit."""
FIELD_BYTES = 1024
FIELDS = 64
SPEC_LEVELS = 4
"""What is kept of the spec of a job that is too large: so many fields of an object, values up to this size, and down to
the fields of a template."""
MOST_VALUES = 4096
"""A large value with more commas is not looked into: decoding its fields would take too long."""
MOST_FIELDS = 12_288
"""A large child with more fields in its spec is left out. A job of 256 KiB has no pod with so many."""
MOST_KEYS = VIEW_BYTES // 32
"""The digests of more keys are larger than a view may be."""
LARGE_OBJECT = 64 * 1024
"""Of a larger object the metadata is decoded first: those of strangers are dropped by it."""


class OwnerView(msgspec.Struct, frozen=True, gc=False):
    """The controller reference of a child."""

    api_version: str
    kind: str
    name: str
    uid: str

    def is_of(self, resource: Resource) -> bool:
        """In any version: all versions show the same objects."""
        return self.kind == resource.kind and self.api_version.rpartition("/")[0] == resource.group


class ContainerView(msgspec.Struct, frozen=True, gc=False):
    name: str
    waiting: str = ""
    exit_code: int | None = None
    reason: str = ""
    line: str = ""
    """The last line of the termination message, or of the message of the waiting state."""
    image: str = ""
    """Set while the container waits for another reason than normal creation."""
    last: "ContainerView | None" = None
    """How the previous run of the container ended."""
    restarts: int = 0
    """How often the kubelet has restarted it in its pod."""
    output: str = ""
    """Of a container that failed: the last lines of its termination message, which often are those of its output."""
    finished: datetime | None = None
    """Of a container that failed: when it ended."""
    memory: str = ""
    """Of a container that ran out of memory: its memory limit."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of ``output``."""
        return tuple(self.output.split("\n")) if self.output else ()


class ServiceView(msgspec.Struct, frozen=True):
    key: Key
    uid: str
    resource_version: int
    owner: OwnerView | None
    deleting: bool


class ChildView(msgspec.Struct, frozen=True):
    """Any other object that a job owns. Only the job's kind knows its fields, so ``raw`` has them undecoded: labels,
    status, and the spec without its template. Of the data of a ConfigMap there are digests."""

    key: Key
    uid: str
    resource_version: int
    owner: OwnerView | None
    deleting: bool
    raw: bytes
    digests: dict[str, str] = {}

    def has_data(self, data: Mapping[str, str]) -> bool:
        """True for a ConfigMap with this data. It may have other keys, too: a merge patch would leave them."""
        return digests(data).items() <= self.digests.items()


class CandidateView(msgspec.Struct, frozen=True):
    """The metadata of an object that another operator created, as long as it has not been adopted."""

    key: Key
    uid: str
    resource_version: int
    owner: OwnerView | None
    deleting: bool
    labels: dict[str, str]
    has_owners: bool
    """True if it has owner references, also if none is of a controller."""
    raw: bytes = b""
    """The whole object, where its kind reads more than the metadata."""


class PodView(msgspec.Struct, frozen=True):
    key: Key
    uid: str
    resource_version: int
    owner: OwnerView | None
    deleting: bool
    labels: dict[str, str]
    node: str
    restart_policy: str
    phase: str
    reason: str
    message: str
    unschedulable: str
    containers: tuple[ContainerView, ...]
    host_ports: tuple[int, ...] = ()
    leaves: datetime | None = None
    """The deletionTimestamp: when the grace period ends. None while the pod is not being deleted."""
    is_forced: bool = False
    """The pod was deleted with a grace period of 0."""
    init_containers: tuple[ContainerView, ...] = ()
    """Only the init containers that wait or have failed."""
    started: datetime | None = None
    """The startTime: when the kubelet accepted the pod."""
    devices: tuple[tuple[str, int], ...] = ()
    """The limits of its extended resources, by name: ``nvidia.com/gpu``."""
    disruption: str = ""
    """Why Kubernetes or Kueue evicts the pod: the reason of its condition DisruptionTarget or TerminationTarget."""
    unhealthy: tuple[tuple[str, int], ...] = ()
    """The number of its devices that the kubelet reports as Unhealthy, by name."""
    healthy: tuple[str, ...] = ()
    """The names of devices that the kubelet reports as Healthy, all of them. Most kubelets report none."""
    is_ready: bool = False
    """The condition Ready is True."""
    unready: tuple[str, ...] = ()
    """Of a running pod whose condition Ready is not True: the containers that are not ready."""
    annotations: dict[str, str] = {}
    """Those of Kueue."""
    is_queued: bool = False
    """Kueue has not admitted the pod: it has Kueue's scheduling gate."""
    is_dequeued: bool = False
    """Kueue evicts the pod: it has the condition TerminationTarget."""

    @property
    def is_ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    def container(self, name: str) -> ContainerView | None:
        return next((c for c in self.containers if c.name == name), None)


class NodeConditionView(msgspec.Struct, frozen=True, gc=False):
    type: str
    since: datetime | None
    message: str


class NodeView(msgspec.Struct, frozen=True):
    """The health of a node. A heartbeat changes only the version of this view.

    ``ready`` is the status of the condition Ready, empty if there is none. ``conditions`` are the other conditions that
    are True. ``taints`` are the taints that Kubernetes sets, with their times. ``devices`` are the allocatable extended
    resources, ``capacity`` those that the node has, working or not. ``is_gone`` is set for a node that was deleted.
    """

    key: Key
    uid: str = ""
    resource_version: int = 0
    deleting: bool = False
    ready: str = ""
    ready_since: datetime | None = None
    message: str = ""
    """Why the node is not ready."""
    taints: tuple[tuple[str, datetime | None], ...] = ()
    conditions: tuple[NodeConditionView, ...] = ()
    devices: Mapping[str, int] = {}
    capacity: Mapping[str, int] = {}
    is_gone: bool = False

    @property
    def name(self) -> str:
        return self.key.name


class LeaseView(msgspec.Struct, frozen=True):
    """The holder of a Lease, empty if it is not held, and the seconds for which it is held after a renewal."""

    key: Key
    uid: str
    resource_version: int
    deleting: bool
    holder: str
    seconds: int


class JobView(msgspec.Struct, frozen=True):
    """One of our resources. It is not decoded: only its kind can validate it. ``ports`` are the ports in its status, of
    jobs on a shared network. ``error`` says why the spec must not be used; ``raw`` is then only a part of the job."""

    key: Key
    uid: str
    resource_version: int
    deleting: bool
    raw: bytes
    ports: tuple[int, ...] = ()
    error: str = ""


class Unreadable(msgspec.Struct, frozen=True):
    """An object that cannot be decoded. ``key`` is None if its name cannot be read either."""

    key: Key | None
    error: str


class Page(msgspec.Struct, Generic[V]):
    views: list[V]
    resource_version: str
    cursor: str
    unreadable: list[Unreadable]


class WatchLine(msgspec.Struct, Generic[V]):
    """One line of a watch. ``view`` is None for a bookmark, for an error (which has ``code``), and for an object that
    cannot be decoded. ``resource_version`` is empty if the line has none."""

    type: str
    view: V | None
    resource_version: str
    code: int = 0
    message: str = ""
    unreadable: Unreadable | None = None


class Codec(Generic[V]):
    """Decodes one resource: msgspec decodes ``wire``, ``slim`` makes the view."""

    def __init__(self, wire: type[W], slim: Callable[[W], V], *, is_whole: bool = False) -> None:
        """``is_whole``: the view has its object undecoded."""
        self._slim: Callable[[Any], V] = slim
        self._is_whole = is_whole
        self._keeps: Callable[[V], bool] = lambda _: True
        self._page = msgspec.json.Decoder(_PageWire[wire])  # type: ignore[valid-type]  # built per wire type
        self._item = msgspec.json.Decoder(wire)
        self._line = msgspec.json.Decoder(_LineWire[wire])  # type: ignore[valid-type]

    def only(self, keeps: Callable[[V], bool]) -> "Codec[V]":
        """A codec that drops all other views: they are in no page, and a watch line says that they are deleted."""
        codec = copy.copy(self)
        codec._keeps = keeps  # noqa: SLF001 of a copy of this object
        return codec

    def page(self, body: bytes) -> Page[V]:
        """Raises ``msgspec.DecodeError`` if the body is not a list. ``unreadable`` are items that cannot be decoded."""
        return self.quick_page(body) or self.page_by_items(body)

    def quick_page(self, body: bytes) -> Page[V] | None:
        """None if not all of its items can be decoded, or if it is not a list."""
        try:
            page = self._page.decode(body)
            views = [view for item in page.items if self._keeps(view := self._view(item, len(body)))]
            return Page(views, _version(page.metadata), page.metadata.cursor, [])
        except Exception:
            return None

    def page_by_items(self, body: bytes) -> Page[V]:
        """Decodes each item separately, so that one bad item does not hide the others. It may take seconds."""
        metadata, items = _split_page(body)
        views: list[V] = []
        unreadable: list[Unreadable] = []
        for item in items:
            try:
                if len(item) > LARGE_OBJECT and not self._is_kept(_head_of(item)):
                    continue
                view = self.object(item)
                if self._keeps(view):
                    views.append(view)
            except Exception as error:
                unreadable.append(Unreadable(_name_of(item), str(error)))
        return Page(views, _version(metadata), metadata.cursor, unreadable)

    def object(self, raw: bytes) -> V:
        """The view of one object. Values that are nested too deeply are dropped, and of a large object the whole spec;
        a job then has ``error``."""
        try:
            return self._view(self._item.decode(raw), len(raw))
        except RecursionError:
            view = self._view(self._item.decode(_shallow(raw)), len(raw))
        if isinstance(view, JobView):
            return msgspec.structs.replace(view, error=TOO_DEEP)
        if len(raw) > SCANNED:  # its spec may be missing
            raise ValueError(TOO_DEEP)
        return view

    def _view(self, wire: Any, size: int) -> V:
        """``size`` is that of the object on the wire, or more. Views of small objects are not measured: no view has
        eight times as many bytes."""
        view = self._slim(wire)
        if size > VIEW_BYTES // 8 and not isinstance(view, JobView):
            kept = len(msgspec.json.encode(view))
            if kept > VIEW_BYTES:
                raise ValueError(f"what is needed of it has {kept} bytes; at most {VIEW_BYTES} are kept of an object")
        return view

    def line(self, line: bytes) -> WatchLine[V]:
        """Raises ``msgspec.DecodeError`` if the line is not a watch event. Whatever a stranger wrote, this takes some
        milliseconds: other jobs wait meanwhile."""
        if len(line) > LARGE_OBJECT and (dropped := self._dropped(line)):
            return dropped
        try:
            wire = self._line.decode(line)
            if wire.type not in ("BOOKMARK", "ERROR"):  # their objects may decode as a view with few fields
                return self._change(wire.type, self._view(wire.object, len(line)))
        except Exception:
            return self._special_line(line)
        return self._special_line(line)

    def _dropped(self, line: bytes) -> WatchLine[V] | None:
        """A line about a large object that is not kept, by its metadata alone; None for all others."""
        try:
            event = _HEAD_LINE.decode(line)
        except (ValueError, RecursionError):
            return None
        head = event.object.metadata
        if event.type in ("BOOKMARK", "ERROR"):
            return None
        if not self._is_kept(head):
            return WatchLine("DELETED", None, head.resource_version, unreadable=Unreadable(head.key(), ""))
        if self._is_whole or not (error := _too_much(event.object)):
            return None
        return WatchLine(event.type, None, head.resource_version, unreadable=Unreadable(head.key(), error))

    def _is_kept(self, head: "_HeadMetaWire | None") -> bool:
        return head is None or self._keeps(head)  # type: ignore[arg-type]  # it has the owner, as a view does

    def _special_line(self, line: bytes) -> WatchLine[V]:
        """A bookmark, an error, or an object that cannot be decoded or is nested too deeply."""
        type_, raw = _split_line(line)
        if type_ == "ERROR":
            return _error_line(line)
        if type_ == "BOOKMARK":  # its object has a resourceVersion and no name
            return WatchLine("BOOKMARK", None, _version_in(_metadata_of(raw)))
        try:
            view = self.object(raw)
        except Exception as error:
            if head := _head_of(raw):
                return WatchLine(type_, None, head.resource_version, unreadable=Unreadable(head.key(), str(error)))
            metadata = _metadata_of(raw)
            return WatchLine(type_, None, _version_in(metadata), unreadable=Unreadable(_key_in(metadata), str(error)))
        return self._change(type_, view)

    def _change(self, type_: str, view: V) -> WatchLine[V]:
        return WatchLine(type_ if self._keeps(view) else "DELETED", view, str(view.resource_version))


def owned_by(owners: Iterable[Resource]) -> Callable[["PodView | ServiceView | ChildView | CandidateView"], bool]:
    """For ``Codec.only``: the controller of the object is of one of these resources, in any version."""
    kinds = frozenset((owner.group, owner.kind) for owner in owners)

    def keeps(view: PodView | ServiceView | ChildView | CandidateView) -> bool:
        owner = view.owner
        return owner is not None and (owner.api_version.rpartition("/")[0], owner.kind) in kinds

    return keeps


def version_of_list(body: bytes) -> int:
    """Raises ``msgspec.DecodeError`` if the body is not a list."""
    try:
        metadata = _ANY_LIST.decode(body).metadata
    except RecursionError:
        metadata, _ = _split_page(body)
    return int(_version(metadata))


def _version(metadata: "_ListMetaWire") -> str:
    if not _VERSION.fullmatch(metadata.version):
        raise msgspec.DecodeError(f"the list has no version: {metadata.version!r}")
    return metadata.version


def _split_page(body: bytes) -> tuple["_ListMetaWire", list[bytes]]:
    try:
        page = _RAW_PAGE.decode(body)
        return page.metadata, [bytes(item) for item in page.items]
    except (ValueError, RecursionError):
        fields = members(body)
        metadata = msgspec.json.decode(fields.get(b"metadata", b""), type=_ListMetaWire)
        items = fields.get(b"items", b"null")
        return metadata, elements(items) if items != b"null" else []  # an empty list of metadata has null


def _too_much(wire: "_HeadWire") -> str:
    """Why a large object is not decoded; empty if it is. Inside of strings, quotes are escaped and do not count."""
    kept = f"at most {VIEW_BYTES} are kept of an object"
    if (labels := len(bytes(wire.metadata.labels))) > VIEW_BYTES:
        return f"its labels have {labels} bytes; {kept}"
    if (keys := bytes(wire.data).count(b',"')) > MOST_KEYS:
        return f"the digests of its {keys + 1} keys have {32 * (keys + 1)} bytes; {kept}"
    if (fields := bytes(wire.spec).count(b',"')) > MOST_FIELDS:
        return f"its spec has about {fields} fields; at most {MOST_FIELDS} are read of a large object"
    return ""


def _split_line(line: bytes) -> tuple[str, bytes]:
    """Type and object of a watch line."""
    event, line = _EVENT.match(line), line.rstrip()
    if event and line.endswith(b"}}"):
        return event[1].decode(), line[event.end() : -1]
    fields = members(line)
    return _text(fields.get(b"type", b"")), fields.get(b"object", b"")


def _shallow(raw: bytes) -> bytes:
    """The object without what is nested too deeply. Only one that no API server wrote is scanned whatever its size."""
    if len(raw) > SCANNED:
        with suppress(ValueError):
            return without_spec(raw)
    return prune(raw)


def _head_of(raw: bytes) -> "_HeadMetaWire | None":
    """The metadata that tells whose an object is; None if it cannot be decoded."""
    try:
        head = _HEAD.decode(raw).metadata
    except RecursionError:
        try:
            head = _HEAD.decode(without_spec(raw)).metadata
        except (ValueError, RecursionError):
            return None
    except ValueError:
        return None
    return head if head.name and _VERSION.fullmatch(head.resource_version) else None


def _name_of(raw: bytes) -> Key | None:
    if head := _head_of(raw):
        return head.key()
    try:
        return _key_in(_metadata_of(raw))
    except msgspec.DecodeError:
        return None


def _metadata_of(raw: bytes) -> dict[bytes, bytes]:
    """The metadata of an object of any shape, undecoded, by field. A ``metadata`` inside of the spec is ignored."""
    metadata = members(raw).get(b"metadata", b"")
    return members(metadata) if metadata.startswith(b"{") else {}


def _key_in(metadata: Mapping[bytes, bytes]) -> Key | None:
    name = _text(metadata.get(b"name", b""))
    return Key(_text(metadata.get(b"namespace", b"")), name) if name else None


def _version_in(metadata: Mapping[bytes, bytes]) -> str:
    version = _text(metadata.get(b"resourceVersion", b""))
    return version if _VERSION.fullmatch(version) else ""


def _text(raw: bytes) -> str:
    """A JSON string; empty for anything else."""
    try:
        return msgspec.json.decode(raw, type=str)
    except ValueError:  # base class of UnicodeDecodeError and of msgspec's errors
        return ""


def _error_line(line: bytes) -> WatchLine[Any]:
    error = _ERROR.decode(line).object
    return WatchLine("ERROR", None, "", error.code, error.message)


def version_of(line: bytes) -> str:
    """The resourceVersion of a watch line whose object is not needed."""
    return _KIND.decode(line).object.metadata.resource_version


# --- the wire ----------------------------------------------------------------------------------


class _OwnerWire(msgspec.Struct, rename="camel", gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _MetaWire(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    owner_references: list[_OwnerWire] | None = None

    def key(self) -> Key:
        return Key(intern(self.namespace), self.name)

    def controller(self) -> OwnerView | None:
        return _controller(self.owner_references)


def _controller(owners: Iterable[_OwnerWire] | None) -> OwnerView | None:
    for owner in owners or ():
        if owner.controller:
            return OwnerView(intern(owner.api_version), intern(owner.kind), intern(owner.name), intern(owner.uid))
    return None


class _HeadMetaWire(msgspec.Struct, rename="camel"):
    """Whose object it is. Its labels, of which there may be many, are not decoded."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    deletion_timestamp: datetime | None = None
    labels: msgspec.Raw = msgspec.Raw()
    owner_references: list[_OwnerWire] | None = None

    def key(self) -> Key:
        return Key(intern(self.namespace), self.name)

    @property
    def owner(self) -> OwnerView | None:
        return _controller(self.owner_references)

    @property
    def has_owners(self) -> bool:
        return bool(self.owner_references)


class _HeadWire(msgspec.Struct):
    metadata: _HeadMetaWire
    spec: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()


class _PodMetaWire(_MetaWire):
    annotations: dict[str, str] | None = None


class _WaitingWire(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""


class _TerminatedWire(msgspec.Struct, rename="camel", gc=False):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class _StateWire(msgspec.Struct):
    waiting: _WaitingWire | None = None
    terminated: _TerminatedWire | None = None


class _HealthWire(msgspec.Struct, gc=False):
    health: str = ""


class _AllocatedWire(msgspec.Struct):
    name: str = ""
    resources: list[_HealthWire] | None = None


class _ContainerWire(msgspec.Struct, rename="camel"):
    name: str = ""
    image: str = ""
    ready: bool = False
    restart_count: int = 0
    state: _StateWire | None = None
    last_state: _StateWire | None = None
    allocated_resources_status: list[_AllocatedWire] | None = None


class _ConditionWire(msgspec.Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class _PortWire(msgspec.Struct, rename="camel", gc=False):
    host_port: int = 0


class _PortsWire(msgspec.Struct):
    """A container of the spec. Its other fields, most of the pod's bytes, are skipped."""

    ports: list[_PortWire] | None = None


class _ResourcesWire(msgspec.Struct):
    limits: dict[str, str | int] | None = None


class _LimitedWire(msgspec.Struct):
    name: str = ""
    resources: _ResourcesWire | None = None


class _GateWire(msgspec.Struct, gc=False):
    name: str = ""


class _PodSpecWire(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""
    restart_policy: str = "Always"
    containers: msgspec.Raw = msgspec.Raw()
    scheduling_gates: list[_GateWire] | None = None


class _PodStatusWire(msgspec.Struct, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    conditions: list[_ConditionWire] | None = None
    container_statuses: list[_ContainerWire] | None = None
    init_container_statuses: list[_ContainerWire] | None = None


class _PodWire(msgspec.Struct):
    metadata: _PodMetaWire
    spec: _PodSpecWire = msgspec.field(default_factory=_PodSpecWire)
    status: _PodStatusWire = msgspec.field(default_factory=_PodStatusWire)


class _ServiceWire(msgspec.Struct):
    metadata: _MetaWire


class _TaintWire(msgspec.Struct, rename="camel", gc=False):
    key: str = ""
    time_added: datetime | None = None


class _NodeSpecWire(msgspec.Struct):
    taints: list[_TaintWire] | None = None


class _NodeStatusWire(msgspec.Struct):
    conditions: list[_ConditionWire] | None = None
    allocatable: dict[str, str | int] | None = None
    capacity: dict[str, str | int] | None = None


class _NodeWire(msgspec.Struct):
    metadata: _MetaWire
    spec: _NodeSpecWire = msgspec.field(default_factory=_NodeSpecWire)
    status: _NodeStatusWire = msgspec.field(default_factory=_NodeStatusWire)


class _LeaseSpecWire(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None


class _LeaseWire(msgspec.Struct):
    metadata: _MetaWire
    spec: _LeaseSpecWire = msgspec.field(default_factory=_LeaseSpecWire)


class _ChildWire(msgspec.Struct):
    metadata: _MetaWire
    spec: dict[str, msgspec.Raw] | None = None
    status: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()


class _JobWire(msgspec.Struct):
    metadata: _HeadMetaWire
    status: msgspec.Raw = msgspec.Raw()


class _JobStatusWire(msgspec.Struct):
    ports: dict[str, dict[str, int]] | None = None


class _ListMetaWire(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    cursor: str = msgspec.field(name="continue", default="")


class _AnyListWire(msgspec.Struct):
    metadata: _ListMetaWire


class _PageWire(msgspec.Struct, Generic[W]):
    metadata: _ListMetaWire
    items: list[W] = []


class _LineWire(msgspec.Struct, Generic[W]):
    type: str
    object: W


class _VersionWire(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _VersionedWire(msgspec.Struct):
    metadata: _VersionWire = msgspec.field(default_factory=_VersionWire)


class _KindWire(msgspec.Struct):
    type: str
    object: _VersionedWire


class _StatusWire(msgspec.Struct):
    code: int = 0
    message: str = ""


class _ErrorWire(msgspec.Struct):
    object: _StatusWire


_VERSION = re.compile(r"[0-9]{1,19}")
_KIND = msgspec.json.Decoder(_KindWire)
_HEAD = msgspec.json.Decoder(_HeadWire)
_HEAD_LINE = msgspec.json.Decoder(_LineWire[_HeadWire])
_EVENT = re.compile(rb'\{"type":"([A-Z]+)","object":')
"""How an API server begins a line."""
_ANY_LIST = msgspec.json.Decoder(_AnyListWire)
_RAW_PAGE = msgspec.json.Decoder(_PageWire[msgspec.Raw])
_ERROR = msgspec.json.Decoder(_ErrorWire)
_JOB = msgspec.json.Decoder(_JobWire)
_DATA = msgspec.json.Decoder(dict[str, str] | None)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
"""The metadata that is kept of a job that is too large."""
_METADATA = msgspec.json.Decoder(_ServiceWire)
_PORTS = msgspec.json.Decoder(list[_PortsWire])
_LIMITS = msgspec.json.Decoder(list[_LimitedWire])
_DEVICE_LIMIT = re.compile(rb'"limits"\s*:\s*\{[^}]*/')
"""Names with a slash are extended resources."""
_KUBERNETES_TAINT = "node.kubernetes.io/"
_CREATING = ("", "ContainerCreating", "PodInitializing")
"""Reasons of a container that waits during normal creation."""
_JOB_STATUS = msgspec.json.Decoder(_JobStatusWire)


_DISRUPTED = "DisruptionTarget"
_DEQUEUED = "TerminationTarget"
_KUEUE = "kueue.x-k8s.io/"
_GATE = f"{_KUEUE}admission"


def _slim_pod(wire: _PodWire) -> PodView:
    meta, spec, status = wire.metadata, wire.spec, wire.status
    # All pods share a few hundred label strings: interned, a label costs one pointer.
    labels = {intern(k): intern(v) for k, v in (meta.labels or {}).items()}
    containers = bytes(spec.containers)
    unhealthy, healthy = _health(status.container_statuses or ())
    true = {c.type: c.reason or c.type for c in status.conditions or () if c.status == "True"}
    unschedulable = next(
        (c.message for c in status.conditions or () if c.type == "PodScheduled" and c.status == "False"), ""
    )
    return PodView(
        key=meta.key(),
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        owner=meta.controller(),
        deleting=meta.deletion_timestamp is not None,
        labels=labels,
        node=intern(spec.node_name),
        restart_policy=intern(spec.restart_policy),
        phase=intern(status.phase),
        reason=status.reason,
        message=status.message,
        unschedulable=unschedulable,
        containers=tuple(_slim_container(c, containers) for c in status.container_statuses or ()),
        host_ports=_host_ports(containers),
        leaves=meta.deletion_timestamp,
        is_forced=meta.deletion_grace_period_seconds == 0,
        init_containers=tuple(_unhealthy(status.init_container_statuses or ())),
        started=status.start_time,
        devices=_devices(containers),
        disruption=true.get(_DISRUPTED) or true.get(_DEQUEUED, ""),
        unhealthy=unhealthy,
        healthy=healthy,
        is_ready="Ready" in true,
        unready=() if "Ready" in true else _unready(status),
        annotations={k: v for k, v in (meta.annotations or {}).items() if k.startswith(_KUEUE)},
        is_queued=any(gate.name == _GATE for gate in spec.scheduling_gates or ()),
        is_dequeued=_DEQUEUED in true,
    )


def _unready(status: _PodStatusWire) -> tuple[str, ...]:
    if status.phase != "Running":
        return ()
    return tuple(intern(c.name) for c in status.container_statuses or () if not c.ready)


def _health(containers: Iterable[_ContainerWire]) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """The devices of which some are Unhealthy, and those of which all are Healthy. Unknown is neither."""
    found: dict[str, list[str]] = {}
    for container in containers:
        for allocated in container.allocated_resources_status or ():
            found.setdefault(intern(allocated.name), []).extend(each.health for each in allocated.resources or ())
    return (
        tuple((name, bad) for name, each in found.items() if (bad := each.count("Unhealthy"))),
        tuple(name for name, each in found.items() if each and all(health == "Healthy" for health in each)),
    )


def _host_ports(containers: bytes) -> tuple[int, ...]:
    if b'"hostPort"' not in containers:  # the usual case; the search costs a tenth of decoding
        return ()
    return tuple(port.host_port for c in _PORTS.decode(containers) for port in c.ports or () if port.host_port)


def _devices(containers: bytes) -> tuple[tuple[str, int], ...]:
    if not _DEVICE_LIMIT.search(containers):
        return ()
    devices: dict[str, int] = {}
    for container in _LIMITS.decode(containers):
        limits = container.resources.limits if container.resources else None
        for name, number in _extended(limits or {}).items():
            devices[name] = devices.get(name, 0) + number
    return tuple((name, number) for name, number in devices.items() if number)


def _extended(amounts: Mapping[str, str | int]) -> dict[str, int]:
    """The resources that device plugins advertise."""
    return {intern(name): _whole(str(amount)) for name, amount in amounts.items() if "/" in name}


def _whole(amount: str) -> int:
    try:
        return int(amount_of(amount))
    except ValueError:
        return 0


def _unhealthy(wires: Iterable[_ContainerWire]) -> Iterator[ContainerView]:
    for wire in wires:
        view = _slim_container(wire)
        if view.exit_code or view.waiting:
            yield view


def _slim_container(wire: _ContainerWire, specs: bytes = b"[]") -> ContainerView:
    """``specs`` are the containers of the spec."""
    name, restarts = intern(wire.name), wire.restart_count
    state = wire.state or _StateWire()
    if state.terminated:
        return _ended_container(name, state.terminated, specs, restarts)
    before = wire.last_state.terminated if wire.last_state else None
    last = _ended_container(name, before, specs) if before else None
    if state.waiting is None:
        return ContainerView(name, last=last, restarts=restarts)
    waiting, reason = state.waiting, intern(state.waiting.reason)
    if waiting.reason in _CREATING:
        return ContainerView(name, waiting=reason, last=last, restarts=restarts)
    line = _last_line(waiting.message)
    return ContainerView(name, waiting=reason, line=line, image=wire.image, last=last, restarts=restarts)


def _ended_container(name: str, ended: _TerminatedWire, specs: bytes, restarts: int = 0) -> ContainerView:
    reason, line = intern(ended.reason), _last_line(ended.message)
    if not ended.exit_code:
        return ContainerView(name, exit_code=ended.exit_code, reason=reason, line=line, restarts=restarts)
    return ContainerView(
        name,
        exit_code=ended.exit_code,
        reason=reason,
        line=line,
        restarts=restarts,
        output=_last_lines(ended.message),
        finished=ended.finished_at,
        memory=_memory_limit(name, specs) if reason == OUT_OF_MEMORY else "",
    )


def _memory_limit(name: str, specs: bytes) -> str:
    try:
        found = [c.resources.limits for c in _LIMITS.decode(specs) if c.name == name and c.resources]
    except msgspec.DecodeError:
        return ""
    return str((found[0] or {}).get("memory", "")) if found else ""


def _last_lines(message: str) -> str:
    """As they would be on a terminal: of a progress bar its last state, and no control sequences."""
    cut = message.encode()[-OUTPUT_BYTES:].decode(errors="ignore")
    lines = cut.split("\n")
    if len(cut) < len(message) and len(lines) > 1:
        del lines[0]  # it is only a part of a line
    shown = (plain(line.rstrip().rpartition("\r")[2].expandtabs(2)) for line in lines)
    return "\n".join([line[:LONGEST_LINE] for line in shown if line.strip()][-OUTPUT_LINES:])


def _last_line(message: str) -> str:
    return message.rstrip().rpartition("\n")[2][-LONGEST_LINE:] if message else ""


def _slim_service(wire: _ServiceWire) -> ServiceView:
    meta = wire.metadata
    deleting = meta.deletion_timestamp is not None
    return ServiceView(meta.key(), meta.uid, int(meta.resource_version), meta.controller(), deleting)


def _slim_child(wire: _ChildWire) -> ChildView:
    meta, owner, data = wire.metadata, wire.metadata.controller(), bytes(wire.data)
    body: dict[str, Any] = {"metadata": {"labels": meta.labels or {}}}
    if wire.spec:
        body["spec"] = {name: value for name, value in wire.spec.items() if name != "template"}
    if bytes(wire.status):
        body["status"] = wire.status
    return ChildView(
        key=meta.key(),
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        owner=owner,
        deleting=meta.deletion_timestamp is not None,
        raw=msgspec.json.encode(body),
        # An object without an owner is no child of a job: its data may be large and need not be read.
        digests=digests(_DATA.decode(data) or {}) if owner and data else {},
    )


def _slim_candidate(wire: _ServiceWire) -> CandidateView:
    meta = wire.metadata
    deleting, version = meta.deletion_timestamp is not None, int(meta.resource_version)
    labels = {intern(k): intern(v) for k, v in (meta.labels or {}).items()}
    return CandidateView(
        meta.key(), meta.uid, version, meta.controller(), deleting, labels, bool(meta.owner_references)
    )


def _slim_whole_candidate(raw: msgspec.Raw) -> CandidateView:
    body = _without_managed_fields(raw)
    return msgspec.structs.replace(_slim_candidate(_METADATA.decode(body)), raw=body)


def _slim_node(wire: _NodeWire) -> NodeView:
    meta, conditions = wire.metadata, wire.status.conditions or ()
    ready = next((c for c in conditions if c.type == "Ready"), _ConditionWire())
    return NodeView(
        key=meta.key(),
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        deleting=meta.deletion_timestamp is not None,
        ready=intern(ready.status),
        ready_since=ready.last_transition_time,
        message="" if ready.status == "True" else _last_line(ready.message),
        taints=tuple((t.key, t.time_added) for t in wire.spec.taints or () if t.key.startswith(_KUBERNETES_TAINT)),
        conditions=tuple(
            NodeConditionView(c.type, c.last_transition_time, _last_line(c.message))
            for c in conditions
            if c.status == "True" and c.type != "Ready"
        ),
        devices=_extended(wire.status.allocatable or {}),
        capacity=_extended(wire.status.capacity or {}),
    )


def _slim_lease(wire: _LeaseWire) -> LeaseView:
    meta, spec = wire.metadata, wire.spec
    return LeaseView(
        key=meta.key(),
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        deleting=meta.deletion_timestamp is not None,
        holder=spec.holder_identity or "",
        seconds=spec.lease_duration_seconds or 0,
    )


def _slim_job(raw: msgspec.Raw) -> JobView:
    view = _slim_whole(raw)
    error = size_error(view.raw)
    return msgspec.structs.replace(view, raw=_part_of(view.raw), error=error) if error else view


def _slim_whole(raw: msgspec.Raw) -> JobView:
    body = _without_managed_fields(raw)
    wire = _JOB.decode(body)
    meta = wire.metadata
    deleting = meta.deletion_timestamp is not None
    return JobView(meta.key(), meta.uid, int(meta.resource_version), deleting, body, _job_ports(bytes(wire.status)))


def _without_managed_fields(raw: msgspec.Raw) -> bytes:
    """A copy: a Raw would keep the whole page alive."""
    body = bytes(raw)
    if b'"managedFields"' not in body:
        return body
    fields = _FIELDS.decode(body)
    metadata = _FIELDS.decode(fields["metadata"])
    metadata.pop("managedFields", None)
    return msgspec.json.encode({**fields, "metadata": metadata})


def _part_of(body: bytes) -> bytes:
    """A job without its large values: enough to tell its kind and its manager, to write its status, and to clean up
    after a job that has ended."""
    fields = _FIELDS.decode(body)
    metadata = _FIELDS.decode(fields["metadata"])
    part: dict[str, Any] = {"metadata": {name: metadata[name] for name in _IDENTITY if name in metadata}}
    if "status" in fields:
        part["status"] = fields["status"]
    spec = msgspec.json.encode(_without_large(bytes(fields.get("spec", b"{}")), SPEC_LEVELS) or {})
    if len(spec) > VIEW_BYTES:
        spec = msgspec.json.encode(_without_large(spec, 1))
    return msgspec.json.encode({**part, "spec": msgspec.Raw(spec)})


def _without_large(value: bytes, levels: int) -> Any:
    """The value; of a large object or array the first fields or items; null for any other large value."""
    if len(value) <= FIELD_BYTES:
        return msgspec.Raw(value)
    if value.count(b",") > MOST_VALUES:
        return None
    if levels and value.startswith(b"{"):
        named = islice(_FIELDS.decode(value).items(), FIELDS)
        return {name: _without_large(bytes(inner), levels - 1) for name, inner in named if len(name) < FIELD_BYTES}
    if levels and value.startswith(b"["):
        return [_without_large(bytes(inner), levels - 1) for inner in islice(_ITEMS.decode(value), FIELDS)]
    return None


def _job_ports(status: bytes) -> tuple[int, ...]:
    if b'"ports"' not in status:
        return ()
    try:
        ports = _JOB_STATUS.decode(status).ports or {}
    except msgspec.ValidationError:
        return ()  # an unknown shape: the kind's validation reports it
    return tuple(number for of_replica in ports.values() for number in of_replica.values())


POD_CODEC: Codec[PodView] = Codec(_PodWire, _slim_pod)
SERVICE_CODEC: Codec[ServiceView] = Codec(_ServiceWire, _slim_service)
CHILD_CODEC: Codec[ChildView] = Codec(_ChildWire, _slim_child)
CANDIDATE_CODEC: Codec[CandidateView] = Codec(_ServiceWire, _slim_candidate)
WHOLE_CANDIDATE_CODEC: Codec[CandidateView] = Codec(msgspec.Raw, _slim_whole_candidate)
JOB_CODEC: Codec[JobView] = Codec(msgspec.Raw, _slim_job, is_whole=True)
WHOLE_CODEC: Codec[JobView] = Codec(msgspec.Raw, _slim_whole, is_whole=True)
"""Objects of any kind and size, for programs that serve one user."""
NODE_CODEC: Codec[NodeView] = Codec(_NodeWire, _slim_node)
LEASE_CODEC: Codec[LeaseView] = Codec(_LeaseWire, _slim_lease)
