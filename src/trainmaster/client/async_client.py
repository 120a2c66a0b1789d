"""The Python API for programs with an event loop. ``sync_client`` has the same without one."""

import asyncio
import os
import secrets
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

import msgspec

from trainmaster.client import change, manifest
from trainmaster.client.connection import Connection, Place, connect, connection_of, now, running_cluster
from trainmaster.client.creation import create as create_objects
from trainmaster.client.embedded import EmbeddedCluster
from trainmaster.client.errors import JobFailed, JobNotFound, Refused, TimedOut, TrainmasterError
from trainmaster.client.explanation import explain
from trainmaster.client.html import job_table, jobs_table
from trainmaster.client.job import Job, document_of
from trainmaster.client.job_finder import TIMEOUT, FoundJob, JobFinder
from trainmaster.client.log_reader import CONNECTIONS, LogOptions, LogReader
from trainmaster.client.manifest import Document
from trainmaster.client.observation import empty_model
from trainmaster.client.quiet import log_as_library
from trainmaster.client.status import JobStatus, read_status, read_statuses
from trainmaster.core.errors import BadConfig, NotFound
from trainmaster.core.view import JOB_CODEC, JobView
from trainmaster.kube.client import KubeCluster
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store
from trainmaster.wiring.loop import first_error

QUEUED_LINES = 1000
"""Lines of logs that wait for the reader. When there are more, no more are read."""

MOST_SHOWN = 20
"""Jobs of a list whose output is read."""
AT_ONCE = 5

Manifest = Mapping[str, Any]
File = str | os.PathLike[str]


class LogLine(NamedTuple):
    """A line of output. ``str()`` of it is as ``trainmaster logs`` prints it."""

    replica: str
    text: str

    def __str__(self) -> str:
        return f"{self.replica} | {self.text}"


class AsyncJobHandle:
    """A job of a cluster."""

    def __init__(self, client: "AsyncClient", found: FoundJob, status: JobStatus | None = None) -> None:
        self._client = client
        self._found = found
        self.last_status = status
        """The state as it was last read; None before."""

    @property
    def name(self) -> str:
        return self._found.key.name

    @property
    def namespace(self) -> str:
        return self._found.key.namespace

    @property
    def kind(self) -> str:
        return self._found.kinds.name

    def __str__(self) -> str:
        return str(self._found)

    def __repr__(self) -> str:
        return f"<{self._found} in namespace {self.namespace}>"

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """A table with the state as it was last read."""
        return job_table(self.last_status, now()) if self.last_status else f"<p>{escape(repr(self))}</p>"

    async def status(self) -> JobStatus:
        """Reads the state of the job, with its replicas and the last lines of their output."""
        self.last_status = await read_status(self._finder, await self._current())
        return self.last_status

    async def wait(self, timeout: float | None = None, *, check: bool = True) -> JobStatus:
        """Waits until the job has ended. Raises ``TimedOut`` after ``timeout`` seconds, and the job goes on. With
        ``check``, a job that did not succeed is a ``JobFailed``, which has the story of ``why``."""
        try:
            async with asyncio.timeout(timeout):
                ended = await self._ended()
        except TimeoutError:
            raise TimedOut(f"{self} has not ended within {timeout:g} s; it goes on, or delete it") from None
        self.last_status = status = await read_status(self._finder, ended)
        if check and not status.succeeded:
            raise JobFailed("\n".join(await explain(self._finder, ended)), status)
        return status

    def logs(
        self, *, follow: bool = False, role: str = "", tail: int | None = None, previous: bool = False
    ) -> AsyncIterator[LogLine]:
        """The output of all replicas, or of those of a role. ``follow`` waits for pods and for lines until the job has
        ended; ``tail`` is the number of last lines of each replica; ``previous`` means the run before the last
        restart of a container in its pod."""
        return _Lines(self.log_batches(follow=follow, role=role, tail=tail, previous=previous))

    async def log_batches(
        self, *, follow: bool, role: str, tail: int | None, previous: bool
    ) -> AsyncGenerator[list[LogLine]]:
        """As ``logs``, with all lines that there are at a time."""
        if follow and previous:
            raise Refused("follow waits for new lines, and previous has none; remove one of them")
        options = LogOptions(role=role, previous=previous, is_all=tail is None, tail=tail or 0)
        lines: list[LogLine] = []
        arrived, has_room = asyncio.Event(), asyncio.Event()

        async def write(label: str, line: str) -> None:
            lines.append(LogLine(label.rstrip(), line))
            arrived.set()
            if len(lines) >= QUEUED_LINES:
                has_room.clear()
                await has_room.wait()

        reader = LogReader(
            self._finder.cluster, await self._current(), options, write, deleted=self._finder.deleted_pods
        )
        async with _Task(reader.follow() if follow else reader.show()) as reading:
            reading.add_done_callback(lambda _: arrived.set())
            while lines or not reading.done():
                await arrived.wait()
                arrived.clear()
                if batch := lines[:]:
                    lines.clear()
                    has_room.set()
                    yield batch
            with refusing():
                try:
                    await reading
                except* TrainmasterError as group:
                    raise first_error(group) from None

    async def why(self) -> str:
        """Why the job waits, restarts or has failed, in at most ten lines, and what to type."""
        return "\n".join(await explain(self._finder, await self._current()))

    async def scale(self, replicas: int, role: str = "") -> None:
        """Changes the number of replicas of a role. A job with several roles needs its name."""
        with refusing():
            await change.scale(self._finder.cluster, self._current, replicas, role)

    async def suspend(self) -> None:
        """Stops the job: its pods are deleted until it is resumed."""
        await change.set_suspended(self._finder.cluster, self._current, is_suspended=True)

    async def resume(self) -> None:
        await change.set_suspended(self._finder.cluster, self._current, is_suspended=False)

    async def delete(self) -> None:
        """Deletes the job and its pods, which have their grace period to end. One that is deleted already is not an
        error."""
        try:
            await change.delete(self._finder.cluster, self._current)
        except (JobNotFound, NotFound):
            return

    @property
    def _finder(self) -> JobFinder:
        return self._client.finder

    async def _current(self) -> FoundJob:
        """The job as it is stored now. Another job of the same name is not it."""
        try:
            found = await self._finder.get(self._found.resource, self._found.key)
        except NotFound:
            raise JobNotFound(f"{self!r} was deleted") from None
        if found.view.uid != self._found.view.uid:
            raise JobNotFound(f"{self!r} was deleted, and another job has its name now")
        return found

    async def _ended(self) -> FoundJob:
        """The job at its end. With a TTL it may be deleted at once."""
        job = await self._current()
        model, changed = empty_model(job), asyncio.Event()
        store = Store[JobView](job.resource)

        def observe(_: JobView | None, after: JobView | None) -> None:
            nonlocal job
            if after is not None and after.uid == job.view.uid:
                job = FoundJob(job.kinds, after)
                model.observe_job(job.resource, None, after)
            else:
                model.observe_job(job.resource, job.view, None)
            changed.set()

        store.listen(observe)
        fields = f"metadata.name={job.key.name}"
        reflector = Reflector(self._finder.cluster, store, JOB_CODEC, namespace=job.key.namespace, fields=fields)
        async with _Task(reflector.run()):
            await reflector.synced.wait()
            if store.get(job.key) is None:  # it was deleted before the list
                observe(None, None)
            while not (outcome := model.outcome(job.resource, job.key)):
                await changed.wait()
                changed.clear()
        if outcome == "deleted":
            raise JobNotFound(f"{self!r} was deleted")
        return job


class AsyncJobList(list[AsyncJobHandle]):
    """Jobs; a table in a notebook."""

    async def refresh(self) -> None:
        """Reads the state of the first jobs, with the output of their replicas."""
        for first in range(0, min(len(self), MOST_SHOWN), AT_ONCE):
            await asyncio.gather(*(_refresh(job) for job in self[first : first + AT_ONCE]))

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """A table with the states as they were last read."""
        return jobs_table([job.last_status for job in self if job.last_status], now())


class AsyncClient:
    """Submits jobs and follows them, on this machine or on a cluster.

    >>> async def main():
    ...     async with AsyncClient() as client:
    ...         job = await client.submit(Job("hello", command=["echo", "hello"]))
    ...         async for line in job.logs(follow=True):
    ...             print(line)
    >>> asyncio.run(main())
    worker-0 | hello

    Without arguments it uses the local cluster of ``trainmaster up``, if that runs, and starts one in this process
    otherwise, which ends with the client. A program that blocks its event loop blocks that cluster, too; ``Client``
    has a thread for it.
    """

    def __init__(
        self, *, context: str = "", kubeconfig: File = "", state: File | None = None, namespace: str = ""
    ) -> None:
        """``context`` and ``kubeconfig`` name a cluster. ``state`` is the state folder of a local cluster, which keeps
        its objects there. ``namespace`` is that of jobs without one."""
        folder = None if state is None else Path(state)
        self._place = Place(os.fspath(kubeconfig), context, folder, namespace)
        self._opening = asyncio.Lock()
        self._embedded: EmbeddedCluster | None = None
        self._finder: JobFinder | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connects, or starts the local cluster. ``async with`` and the first call do it, too."""
        async with self._opening:
            if self._is_closed:
                raise TrainmasterError("this client is closed; make a new one")
            if self._finder is None:
                log_as_library()
                await self._open()

    async def _open(self) -> None:
        try:
            connection = await self._connect()
            cluster = KubeCluster(connection.config, timeout=TIMEOUT, connections=CONNECTIONS)
            self._finder = JobFinder(await cluster.__aenter__(), connection)
        except BaseException:
            await self.close()
            raise

    async def _connect(self) -> Connection:
        place = self._place
        if place.kubeconfig or place.context:
            return connect(place)
        if local := running_cluster(place.state):
            return connection_of(place, local)
        self._embedded, state = await EmbeddedCluster.start(place.state, place.namespace or "default")
        if place.state is None:  # no other program finds its folder
            place = msgspec.structs.replace(place, kubeconfig=str(state.kubeconfig))
        return connection_of(place, state.kubeconfig)

    async def close(self) -> None:
        """Ends the local cluster that this client has started, and all its processes."""
        self._is_closed = True
        finder, self._finder = self._finder, None
        try:
            if finder is not None:
                await finder.cluster.close()
        finally:
            if self._embedded is not None:
                await self._embedded.stop()

    def kill(self) -> None:
        """While the client closes: processes get no more time to end."""
        if self._embedded is not None:
            self._embedded.kill()

    @property
    def finder(self) -> JobFinder:
        if self._finder is None:
            raise TrainmasterError("this client is closed; make a new one")
        return self._finder

    @overload
    async def submit(self, job: Job | Manifest, *, unique: bool = False) -> AsyncJobHandle: ...
    @overload
    async def submit(self, job: File, *, unique: bool = False) -> AsyncJobList: ...
    async def submit(self, job: Job | Manifest | File, *, unique: bool = False) -> AsyncJobHandle | AsyncJobList:
        """Creates a job: a ``Job``, a manifest as a dict, or the path of a file with manifests, which returns a list.
        ``unique`` adds a random suffix to its name. Raises ``Refused`` if it is not accepted."""
        created, texts = await self.create(job, unique=unique)
        for text in texts:
            warnings.warn(text, stacklevel=2)
        return created[0] if isinstance(job, Job | Mapping) else created

    async def create(self, job: Job | Manifest | File, *, unique: bool) -> tuple[AsyncJobList, list[str]]:
        """The jobs, also if it is one, and the warnings of the API server."""
        await self.open()
        finder = self.finder
        with refusing():
            documents = _documents(job, is_local=finder.connection.is_local)
            manifest.check_fields(documents)
            documents = [_renamed(document) for document in documents] if unique else documents
            documents = manifest.placed(documents, self._place.namespace, default=finder.connection.namespace)
        texts: list[str] = []
        created = await create_objects(finder, documents, texts.append)
        return AsyncJobList(AsyncJobHandle(self, found) for found in created), texts

    async def jobs(self) -> AsyncJobList:
        """All jobs, or those of the client's namespace if it has one."""
        await self.open()
        found = await self.finder.all()
        statuses = await read_statuses(self.finder, found)
        return AsyncJobList(AsyncJobHandle(self, *pair) for pair in zip(found, statuses, strict=True))

    async def job(self, name: str) -> AsyncJobHandle:
        """The job NAME, KIND/NAME or NAMESPACE/NAME. Raises ``JobNotFound``."""
        await self.open()
        return AsyncJobHandle(self, await self.finder.find(name))


async def _refresh(job: AsyncJobHandle) -> None:
    with suppress(JobNotFound):  # it was deleted
        await job.status()


def _documents(job: Job | Manifest | File, *, is_local: bool) -> list[Document]:
    if isinstance(job, Job):
        return [document_of(job, is_local=is_local)]
    if isinstance(job, Mapping):
        document = manifest.document_of(dict(job), "the manifest")
        if not document.is_job:
            raise Refused(f"{document.where}: {document} is not a job")
        return [document]
    if not isinstance(job, str | os.PathLike):
        raise Refused(f"a job is a Job, a dict or a path, not {type(job).__name__}")
    path = os.fspath(job)
    if isinstance(job, str) and (path in ("", manifest.STDIN) or "\n" in path or _is_yaml(path)):
        raise Refused("this is text and not a path; write it into a file, or pass a dict: yaml.safe_load(text)")
    return manifest.read([path])


def _is_yaml(text: str) -> bool:
    with suppress(OSError):  # it is too long for a name
        if Path(text).exists():
            return False
    return ": " in text or text.startswith("{")


def _renamed(document: Document) -> Document:
    if not document.is_job:
        return document
    return document.named(f"{document.key.name}-{secrets.token_hex(3)}")


@contextmanager
def refusing() -> Iterator[None]:
    """Errors in manifests and arguments, in the words of the command line."""
    try:
        yield
    except (Refused, JobNotFound):
        raise
    except BadConfig as error:
        raise Refused(str(error)) from error


class _Lines(AsyncIterator[LogLine]):
    def __init__(self, batches: AsyncIterator[list[LogLine]]) -> None:
        self._batches = batches
        self._lines: Iterator[LogLine] = iter(())

    async def __anext__(self) -> LogLine:
        while (line := next(self._lines, None)) is None:
            self._lines = iter(await anext(self._batches))
        return line


class _Task:
    """``work`` goes on while the block runs, and is cancelled then. Not a generator: when a loop ends, it closes
    generators in any order."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work)

    async def __aenter__(self) -> asyncio.Task[None]:
        return self._task

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.exception()  # the block has it already, or does not need it
