"""One job in a cluster in memory, driven by the operator's own loop; time passes only in ``World.run``.

The kind of the job is reached by ``Controller`` alone, which calls ``Kind.plan`` and ``Kind.conclude``. All that a test
reads is JSON as the API server would show it, and the Events that were recorded.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.build import SETTINGS, kind_of
from tests.laws.memory import Object, owner_uid
from tests.laws.operator import EPOCH, VirtualLoop
from tests.matrix.cluster import Api, Cluster
from trainmaster.core.errors import Conflict, ServerError, TooManyRequests, Unreachable
from trainmaster.core.ids import NODE, POD, SERVICE, Key, Resource
from trainmaster.core.plan import LAZY, Event
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import (
    CHILD_CODEC,
    JOB_CODEC,
    NODE_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    WHOLE_CANDIDATE_CODEC,
    CandidateView,
    ChildView,
    Codec,
    JobView,
    NodeView,
    PodView,
    ServiceView,
)
from trainmaster.kinds.base import Kind, Settings
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.adopter import Adopter
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.controller import Controller
from trainmaster.runtime.executor import Executor
from trainmaster.runtime.host_ports import HostPorts
from trainmaster.runtime.node_index import NodeIndex
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.store import Store

NODES = 8
Selects = Callable[[Object], bool]
"""Of labels."""

MOST_STEPS = 2000
"""Steps in one ``run``: an operator that needs more is in a loop."""


class Notes(Recorder):
    """Keeps Events instead of sending them."""

    def __init__(self, api: Api, now: Any) -> None:
        super().__init__(api, now)
        self.events: list[Event] = []

    def record(self, resource: Resource, job: JobView, component: str, event: Event) -> None:
        self.events.append(event)


class Watch:
    """A store, and the objects that its label selector shows to it."""

    def __init__(self, resource: Resource, store: Store[Any], codec: Codec[Any], selects: Selects) -> None:
        self._resource, self._store, self._codec, self._selects = resource, store, codec, selects
        self._read = 0
        store.replace((), 0)

    def catch_up(self, api: Api) -> None:
        stream = api.streams.get(self._resource, [])
        for change in stream[self._read :]:
            line = self._codec.line(change.line())
            labels = msgspec.json.decode(change.body)["metadata"].get("labels", {})
            if line.type == "DELETED" or not self._selects(labels):
                self._store.remove(line.view)
            else:
                self._store.put(line.view)
        self._read = len(stream)


def matches(labels: Object, selector: str) -> bool:
    """Of terms that ask for equality, or for the contrary."""
    for term in filter(None, selector.split(",")):
        key, value = term.replace("!=", "=").split("=", 1)
        if (labels.get(key) == value) == ("!=" in term):
            return False
    return True


def _is_managed(labels: Object) -> bool:
    return MANAGED_BY.items() <= labels.items()


def _any(labels: Object) -> bool:
    return True


def resources_of(kind: Kind[Any]) -> tuple[Resource, ...]:
    """Of which the predecessor of a kind created children."""
    return kind.predecessor.resources if kind.predecessor else ()


class World:
    def __init__(
        self, job: Object, *, kind: Kind[Any] | None = None, settings: Settings = SETTINGS, nodes: int = NODES
    ) -> None:
        self.loop = VirtualLoop()
        self.api = Api(self.now)
        self.cluster = Cluster(self.api, nodes)
        self.manifest = job
        self.key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
        self.kind: Kind[Any] = kind or kind_of(job, settings)
        self._stores: dict[Resource, tuple[Store[Any], Codec[Any]]] = {}
        self._watches: list[Watch] = []
        self._controller = self.loop.run_until_complete(self._build())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.loop.close()
        asyncio.set_event_loop(None)

    async def _build(self) -> Controller:
        kind = self.kind
        jobs, pods, services = Store[JobView](kind.resource), Store[PodView](POD), Store[ServiceView](SERVICE)
        children = {resource: Store[ChildView](resource) for resource in kind.children}
        related = Store[JobView](kind.related.resource) if kind.related else None
        nodes = Store[NodeView](NODE)
        self._stores = {
            kind.resource: (jobs, JOB_CODEC),
            POD: (pods, POD_CODEC),
            SERVICE: (services, SERVICE_CODEC),
            NODE: (nodes, NODE_CODEC),
            **{resource: (store, CHILD_CODEC) for resource, store in children.items()},
        }
        barrier = Barrier({resource: store for resource, (store, _) in self._stores.items() if resource != NODE})
        if kind.related and related is not None:
            self._stores[kind.related.resource] = (related, JOB_CODEC)
        candidates = {resource: Store[CandidateView](resource) for resource in resources_of(kind)}
        self._watches = [
            *(
                Watch(resource, store, codec, _is_managed if resource in (POD, SERVICE, *children) else _any)
                for resource, (store, codec) in self._stores.items()
            ),
            *(Watch(r, store, WHOLE_CANDIDATE_CODEC, self._is_candidate) for r, store in candidates.items()),
        ]
        ports = HostPorts()
        ports.follow(jobs, pods)
        self.notes = Notes(self.api, self.now)
        return Controller(
            ResourceKinds(kind),
            jobs=jobs,
            pods=pods,
            services=services,
            barrier=barrier,
            executor=Executor(self.api, barrier),
            recorder=self.notes,
            ports=ports,
            now=self.now,
            workers=1,
            related={kind.related: related} if kind.related and related else None,
            children=children,
            nodes=NodeIndex(nodes, pods) if kind.looks_at_nodes else None,
            adopter=Adopter(
                ResourceKinds(kind),
                {(kind.predecessor, resource): store for resource, store in candidates.items()},
                {POD: pods, SERVICE: services, **children},
            ),
        )

    def _is_candidate(self, labels: Object) -> bool:
        selector = self.kind.predecessor.selector if self.kind.predecessor else ""
        return bool(selector) and matches(labels, selector)

    # --- time ---

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.virtual)

    def run(self, seconds: float = 0) -> None:
        """Runs cluster and operator for so long. A pass follows each change, and each time that a plan asked for."""
        end, idle = self.loop.virtual + seconds, 0
        for _ in range(MOST_STEPS):
            if self._step():
                idle = 0
                continue
            then = min(self.loop.virtual + self._pause(idle), end)
            if then == self.loop.virtual:
                return
            self.loop.virtual, idle = then, idle + 1
        raise AssertionError(f"the job is never quiet: {self._plan()}")

    def operate(self) -> None:
        """Passes of the operator alone, until the plan is quiet or what it waits for does not come."""
        before = -1
        while before != self.api.revision:
            before = self.api.revision
            self._catch_up()
            self._pass()

    def _step(self) -> bool:
        """True when anything changed."""
        before = self.api.revision
        self.api.collect_garbage(self.kind.resource, (POD, SERVICE, *self.kind.children))
        self.cluster.step()
        self._catch_up()
        self._pass()
        return self.api.revision != before

    def _pause(self, idle: int) -> float:
        """Seconds until something may happen by itself. A status may wait to be stored, and what was refused is tried
        again, later each time; ``idle`` are the steps since anything changed."""
        plan = self._plan()
        waits = [min(LAZY * 2**idle, 60.0)] if self.cluster.away or (plan and not plan.is_quiet) else []
        if plan and plan.requeue_after is not None:
            waits.append(max(plan.requeue_after, 0.5))
        return min(waits, default=3600.0)

    # --- the operator ---

    def _catch_up(self) -> None:
        for watch in self._watches:
            watch.catch_up(self.api)

    def _pass(self) -> None:
        async def reconcile() -> None:
            try:
                await self._controller.reconcile(self.key)
            except (Conflict, TooManyRequests, ServerError, Unreachable):
                self._controller.queue.retry(self.key)  # the pass ends, and is tried again

        self.loop.run_until_complete(reconcile())

    def _plan(self) -> Any:
        view = self._stores[self.kind.resource][0].get(self.key)
        return self.kind.plan(view, self._controller.observer.observe(view), self.now()) if view else None

    def restart(self) -> None:
        """Another process of the operator takes over; it knows nothing but what is stored."""
        self._controller = self.loop.run_until_complete(self._build())

    # --- what a user does ---

    def put(self, resource: Resource, body: Object) -> None:
        self.api.put(resource, body)

    def create(self) -> None:
        body = msgspec.json.encode({key: value for key, value in self.manifest.items() if key != "status"})
        self.loop.run_until_complete(self.api.create(self.kind.resource, self.key.namespace, body))
        if status := self.manifest.get("status"):
            self.api.set_status(self.kind.resource, self.key, status)

    def edit(self, path: Sequence[str | int], value: Any) -> None:
        """Changes one field of the job's spec."""
        spec = msgspec.json.decode(msgspec.json.encode(self.job["spec"]))
        place = spec
        for step in path[:-1]:
            place = place[step] if isinstance(step, int) else place.setdefault(step, {})
        place[path[-1]] = value
        self.api.edit(self.kind.resource, self.key, spec)

    def set_status(self, status: Object) -> None:
        """Merged into the job's status, as di-server or another operator writes it."""
        self.api.set_status(self.kind.resource, self.key, status)

    def delete_pod(self, key: Key) -> None:
        self.api._delete(POD, key, None)

    def end_container(
        self, key: Key, code: int, reason: str, *, containers: Sequence[str] = (), message: str = "", at: str = ""
    ) -> None:
        """The main container of a pod ends; the pod does, too, unless other containers run on."""
        pod = self.pods[key]
        ended = {"exitCode": code, "reason": reason, "finishedAt": at or self.api.stamp(), "message": message}
        state = {"terminated": ended}
        statuses = [
            {**status, "state": state} if not containers or status["name"] in containers else status
            for status in pod["status"]["containerStatuses"]
        ]
        is_over = all("terminated" in status["state"] for status in statuses)
        phase = ("Failed" if code else "Succeeded") if is_over else "Running"
        self.api.set_status(POD, key, {"phase": phase, "containerStatuses": statuses})

    # --- what a test reads ---

    @property
    def job(self) -> Object:
        return self.api.objects[self.kind.resource][self.key]

    @property
    def is_gone(self) -> bool:
        return self.key not in self.api.objects.get(self.kind.resource, {})

    @property
    def pods(self) -> dict[Key, Object]:
        """All pods of the job, those of its batch Jobs included."""
        owners = {self.manifest["metadata"].get("uid", ""), *self._uids(self.kind.resource)}
        for resource in self.kind.children:
            owners |= set(self._uids(resource))
        return {key: pod for key, pod in self.api.objects.get(POD, {}).items() if owner_uid(pod) in owners}

    @property
    def running(self) -> dict[str, str]:
        """The names of running pods by uid."""
        return {
            pod["metadata"]["uid"]: key.name
            for key, pod in self.pods.items()
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    @property
    def services(self) -> set[str]:
        """All names; the ancestors' need no owner."""
        return {key.name for key in self.api.objects.get(SERVICE, {})}

    def _uids(self, resource: Resource) -> list[str]:
        return [body["metadata"]["uid"] for body in self.api.objects.get(resource, {}).values()]
