"""Finds jobs on a cluster by what a user types: ``name``, ``kind/name`` or ``namespace/name``."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from trainmaster.client.connection import Connection, Place, connect
from trainmaster.client.errors import JobNotFound
from trainmaster.client.kind_name import kinds_called
from trainmaster.core.errors import BadConfig, Forbidden, NotFound
from trainmaster.core.ids import Key, Resource
from trainmaster.core.view import JOB_CODEC, Codec, JobView, V
from trainmaster.kinds.base import Kind, Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.transport import CONNECTIONS
from trainmaster.local.deleted_log import DeletedPod, deleted_pods
from trainmaster.local.state import State
from trainmaster.runtime.cluster import Cluster
from trainmaster.wiring.loop import run_loop

PAGE = 500
MOST = 20_000
"""Objects of one resource that are read."""
MENTIONED = 5
"""Jobs that an error names."""
TIMEOUT = 15.0
"""Seconds of one request: a user waits for the answer."""

T = TypeVar("T")


class FoundJob(msgspec.Struct, frozen=True):
    kinds: ResourceKinds
    view: JobView

    @property
    def kind(self) -> Kind[Any]:
        return self.kinds.of(self.view.raw)

    @property
    def resource(self) -> Resource:
        return self.kinds.resource

    @property
    def key(self) -> Key:
        return self.view.key

    def __str__(self) -> str:
        return f"{self.kinds.name}/{self.key.name}"


class JobFinder:
    def __init__(self, cluster: KubeCluster, connection: Connection) -> None:
        self.cluster = cluster
        self.connection = connection
        self._kinds = all_resource_kinds(Settings(shared_network=connection.is_local))

    def deleted_pods(self) -> list[DeletedPod] | None:
        """Pods of the local cluster whose logs are kept, oldest first; None for another cluster."""
        if not self.connection.is_local:
            return None
        return deleted_pods(State(Path(self.connection.kubeconfig).parent).node)

    async def all(self) -> list[FoundJob]:
        """The jobs of the given namespace, else those of all namespaces that may be read."""
        try:
            found = await self._listed(self.connection.namespace if self.connection.is_narrow else "")
        except Forbidden:
            if self.connection.is_narrow:
                raise
            found = await self._listed(self.connection.namespace)
        return sorted(found, key=lambda job: (job.key, job.kinds.name))

    async def find(self, text: str) -> FoundJob:
        """The job of this name. If there is none, or more than one, the error names the jobs that exist."""
        kinds, key = self._read(text)
        found = [job for each in kinds if (job := await self._get(each, key))]
        if len(found) == 1:
            return found[0]
        if found:
            names = " and ".join(str(job) for job in found)
            raise BadConfig(f"{text} is ambiguous in namespace {key.namespace}: there are {names}; write one of these")
        raise JobNotFound(self._unknown(text, key, await self.all()))

    async def get(self, resource: Resource, key: Key) -> FoundJob:
        """A job of this resource, in any version."""
        kinds = next(each for each in self._kinds if resource in each.resources)
        return FoundJob(kinds, JOB_CODEC.object(await self.cluster.get(kinds.resource, key)))

    def _read(self, text: str) -> tuple[Sequence[ResourceKinds], Key]:
        first, slash, name = text.rpartition("/")
        if not name or "/" in first:
            raise BadConfig(f"{text!r} is not a job; write NAME, KIND/NAME or NAMESPACE/NAME")
        if not slash:
            return self._kinds, Key(self.connection.namespace, name)
        if called := {each.resource for each in kinds_called(first)}:
            return [each for each in self._kinds if each.resource in called], Key(self.connection.namespace, name)
        if self.connection.is_narrow and first != self.connection.namespace:
            raise BadConfig(f"{text}: --namespace is {self.connection.namespace}; remove one of them")
        return self._kinds, Key(first, name)

    async def _get(self, kinds: ResourceKinds, key: Key) -> FoundJob | None:
        try:
            return await self.get(kinds.resource, key)
        except NotFound:  # the job, or its definition
            return None

    async def _listed(self, namespace: str) -> list[FoundJob]:
        pages = [await self._list(each, namespace) for each in self._kinds]
        if all(page is None for page in pages):
            raise BadConfig(
                f"{self.connection.title} has no definitions of jobs; "
                "install them with: trainmaster crds | kubectl apply -f -"
            )
        return [job for page in pages for job in page or ()]

    async def _list(self, kinds: ResourceKinds, namespace: str) -> list[FoundJob] | None:
        """None if the resource is not defined."""
        try:
            views = await listed(self.cluster, kinds.resource, JOB_CODEC, namespace)
        except NotFound:
            return None
        return [FoundJob(kinds, view) for view in views]

    def _unknown(self, text: str, key: Key, jobs: Sequence[FoundJob]) -> str:
        elsewhere = [job for job in jobs if job.key.name == key.name]
        if elsewhere:
            places = _named(str(job.key) for job in elsewhere)
            return f"there is no job {text} in namespace {key.namespace}, but {places}; write NAMESPACE/NAME"
        exist = _named(f"{job.key.namespace}/{job.key.name}" for job in jobs) or "none"
        return f"there is no job {text} in {self.connection.title}; jobs: {exist}"


def _named(names: Iterable[str]) -> str:
    found = list(names)
    rest = len(found) - MENTIONED
    return ", ".join(found[:MENTIONED]) + (f" and {rest} more" if rest > 0 else "")


async def listed(
    cluster: Cluster, resource: Resource, codec: Codec[V], namespace: str = "", selector: str = ""
) -> list[V]:
    """All objects, page by page. Objects that cannot be read are left out."""
    found: list[V] = []
    cursor = ""
    while True:
        body = await cluster.list(resource, namespace=namespace, selector=selector, limit=PAGE, cursor=cursor)
        page = codec.page(body)
        found += page.views
        if not page.cursor:
            return found
        if len(found) >= MOST:
            raise BadConfig(f"there are more than {MOST} {resource}; choose a namespace with --namespace")
        cursor = page.cursor


def with_finder(
    place: Place, work: Callable[[JobFinder], Coroutine[Any, Any, T]], *, connections: int = CONNECTIONS
) -> T:
    """Runs ``work`` to its end."""

    async def run() -> T:
        connection = connect(place)
        async with KubeCluster(connection.config, timeout=TIMEOUT, connections=connections) as cluster:
            return await work(JobFinder(cluster, connection))

    return run_loop(run())
