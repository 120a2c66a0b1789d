"""Reads the logs of one job through the API: those of its pods now, or all until the job has ended. Those of deleted
pods of a local cluster are in its folder."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from trainmaster.client.job_finder import FoundJob, listed
from trainmaster.client.observation import SELECTOR, empty_model, model_of
from trainmaster.client.run_model import Job, LogSource, natural
from trainmaster.core.errors import ApiError, BadConfig, NotFound, Unreachable
from trainmaster.core.ids import JOB, POD, Resource
from trainmaster.core.view import WHOLE_CODEC, JobView
from trainmaster.kube.client import KubeCluster
from trainmaster.local.deleted_log import DeletedPod
from trainmaster.local.node.log import LogOptions as KubeletLogOptions
from trainmaster.local.node.log import read_log
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store

LAST_LINES = 100
"""Lines of each container that are shown by default."""
MOST_STREAMS = 500
"""Containers that are followed at the same time."""
CONNECTIONS = MOST_STREAMS + 16
"""For logs, and for watches and requests beside them."""
END_SECONDS = 5.0
"""Seconds without a line, after the end of a job, until its pods that still run are not followed any more."""

KEPT_SECONDS = 2.0
"""How long the log of a deleted pod is looked for: the node moves it when the API server has deleted the pod."""
KEPT_POLL = 0.1

ReadDeleted = Callable[[], Sequence[DeletedPod] | None]
"""Deleted pods of any jobs whose logs are kept, oldest first; None for a cluster that keeps none."""
Write = Callable[[str, str], Awaitable[None]]
"""Takes the label of a replica and a line. While it waits, nothing more is read."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    role: str = ""
    previous: bool = False
    is_all: bool = False
    """All lines, and all runs of each container."""
    tail: int = LAST_LINES
    """The number of lines of each container, unless all are read."""
    is_raw: bool = False
    """Lines have all their bytes: those that are not UTF-8 as surrogates, and all states of a progress bar."""


class LogReader:
    """``has_many`` is set if the logs of other jobs are written beside these."""

    def __init__(
        self,
        cluster: KubeCluster,
        job: FoundJob,
        options: LogOptions,
        write: Write,
        *,
        deleted: ReadDeleted,
        has_many: bool = False,
    ) -> None:
        self._cluster = cluster
        self.job = job
        self._options = options
        self._write = write
        self._deleted = deleted
        self._model = empty_model(job, has_many=has_many)
        self._width = 0
        """The length of the longest label so far."""
        self._changed = asyncio.Event()
        self._wrote_at = 0.0
        self._writing = 0
        """Lines that wait to be written."""
        self._streams: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        """By pod, container and run."""

    @property
    def jobs(self) -> Sequence[Job]:
        """The job with its replicas, as far as they were observed."""
        return self._model.jobs

    async def show(self) -> None:
        """Writes the logs of the pods that exist, one after the other, and kept logs of deleted pods."""
        self._model = await model_of(self._cluster, self.job)
        sources = self._with_deleted(self._sources())
        if not sources:
            raise BadConfig(self.nothing("; --follow waits for pods"))
        for source in sources:
            async for line in self._read(source):
                await self._write(self._label(source), line)

    def nothing(self, hint: str = "") -> str:
        """Why there are no logs. ``hint`` is for a job that may still have some."""
        if self._options.previous:
            return f"{self.job} has no container that was restarted in its pod, and so no earlier logs"
        role = f" of {self._options.role}" if self._options.role else ""
        roles = sorted({source.role for source in self._model.log_sources(self.job.view.uid)})
        if role and roles and self._options.role.lower() not in roles:
            return f"{self.job} has no pod{role}; it has pods of {', '.join(roles)}"
        return (
            f"{self.job} has no pod{role} that has started, or they are deleted, and so no logs; "
            f"`trainmaster why` says what happened{hint}"
        )

    async def follow(self) -> None:
        """Writes the logs of all pods, also of those that do not exist yet, until the job has ended."""
        async with asyncio.TaskGroup() as group:
            reflectors = self._reflectors()
            watching = [group.create_task(reflector.run()) for reflector in reflectors]
            try:
                for reflector in reflectors:  # a job that has ended may have pods
                    await reflector.settled.wait()
                await self._follow(group)
            finally:
                for task in (*watching, *self._streams.values()):
                    task.cancel()

    @property
    def has_followed(self) -> bool:
        """Whether there was a log to follow."""
        return bool(self._streams)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        has_listed = False
        while True:
            self._changed.clear()
            for source in self._sources():
                if (source.uid, source.container, source.run) not in self._streams:
                    self._streams[source.uid, source.container, source.run] = self._start(group, source)
            is_over = bool(self._model.outcome(self.job.resource, self.job.key))
            if is_over and not has_listed:
                has_listed, self._wrote_at = True, clock()
                await self._list_pods()
                continue
            is_silent = not self._writing and clock() - self._wrote_at >= END_SECONDS
            if is_over and (is_silent or all(task.done() for task in self._streams.values())):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS if is_over else None):
                    await self._changed.wait()

    async def _list_pods(self) -> None:
        """The watch of pods may be behind that of the job, which has ended."""
        for pod in await listed(self._cluster, POD, WHOLE_CODEC, self.job.key.namespace, SELECTOR):
            self._model.observe_pod(None, pod)

    def _start(self, group: asyncio.TaskGroup, source: LogSource) -> asyncio.Task[None]:
        running = sum(not task.done() for task in self._streams.values())
        if running >= MOST_STREAMS:
            raise BadConfig(f"{self.job} has more than {MOST_STREAMS} running containers; choose some with --role")
        task = group.create_task(self.stream(source))
        task.add_done_callback(lambda _: self._changed.set())
        return task

    async def stream(self, source: LogSource) -> None:
        """Writes the log of one container until it has ended."""
        try:
            await self._copy(source)
        except NotFound:
            if kept := await self._kept(source):
                await self._copy(kept)
            else:
                await self._write_line(source, "(its pod is deleted, and its log with it)")
        except (ApiError, Unreachable) as error:
            await self._write_line(source, f"(its log cannot be read any more: {error})")

    async def _copy(self, source: LogSource) -> None:
        async for line in self._read(source, follow=True):
            self._model.observe_line(source.uid, line)
            await self._write_line(source, line)

    async def _kept(self, source: LogSource) -> LogSource | None:
        """The log of a deleted pod, where the node keeps it."""
        clock = asyncio.get_running_loop().time
        until = clock() + KEPT_SECONDS
        while (pods := self._deleted()) is not None:
            for container, run, file in (log for pod in pods if pod.uid == source.uid for log in pod.logs):
                if (container, run) == (source.container, source.run):
                    return msgspec.structs.replace(source, file=file)
            if clock() >= until:
                return None
            await asyncio.sleep(KEPT_POLL)
        return None

    async def _write_line(self, source: LogSource, line: str) -> None:
        self._writing += 1
        try:
            await self._write(self._label(source), line)
        finally:
            self._writing -= 1
            self._wrote_at = asyncio.get_running_loop().time()

    async def _read(self, source: LogSource, *, follow: bool = False) -> AsyncIterator[str]:
        options = self._options
        tail = None if options.is_all else options.tail
        if source.file:
            async for line in _lines(source.file, tail):
                yield self._text(line)
            return
        is_earlier = source.run > 0 and (options.previous or (options.is_all and not follow))
        if is_earlier:
            async with self._cluster.log(source.pod, source.container, previous=True, tail=tail) as lines:
                async for line in lines:
                    yield self._text(line)
        if not options.previous:
            async with self._cluster.log(source.pod, source.container, follow=follow, tail=tail) as lines:
                async for line in lines:
                    yield self._text(line)

    def _text(self, line: bytes) -> str:
        """Of a progress bar its last state."""
        if self._options.is_raw:
            return line.decode(errors="surrogateescape")
        return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")

    def _sources(self) -> Sequence[LogSource]:
        options = self._options
        found = self._model.log_sources(self.job.view.uid)
        found = [source for source in found if options.role.lower() in ("", source.role)]
        found = [source for source in found if source.run > 0 or not options.previous]
        self._width = max((self._width, *(len(source.label) for source in found)))
        return found

    def _with_deleted(self, live: Sequence[LogSource]) -> Sequence[LogSource]:
        """By default the last pod of each replica; with ``--previous`` the one before; with ``--all`` all pods."""
        options, job = self._options, self.job.view.uid
        current = {source.label for source in self._model.log_sources(job)}
        shown = {source.label for source in live}
        chosen: list[LogSource] = []
        for label, earlier in self._deleted_sources().items():
            if options.is_all:
                chosen += earlier
            elif label in shown:
                continue
            elif not options.previous:
                chosen += earlier[-1:]
            else:
                chosen += earlier[-1:] if label in current else earlier[-2:-1]
        found = [source for source in chosen if options.role.lower() in ("", source.role)]
        self._width = max((self._width, *(len(source.label) for source in found)))
        return sorted([*found, *live], key=lambda source: natural(source.label))

    def _deleted_sources(self) -> dict[str, list[LogSource]]:
        """Oldest first, by label."""
        found: dict[str, list[LogSource]] = {}
        for pod in self._deleted() or ():
            view = WHOLE_CODEC.object(pod.body)
            if not self._model.observe_deleted(view, self.job.view):
                continue
            for container, run, file in pod.logs:
                source = self._model.deleted_source(view.uid, container, run, file)
                found.setdefault(source.label, []).append(source)
        return found

    def _label(self, source: LogSource) -> str:
        return source.label.ljust(self._width)

    def _reflectors(self) -> list[Reflector[JobView]]:
        children = [JOB, POD] if JOB in self.job.kinds.children else [POD]
        own = self._reflector(self.job.resource, fields=f"metadata.name={self.job.key.name}")
        return [own, *(self._reflector(resource, selector=SELECTOR) for resource in children)]

    def _reflector(self, resource: Resource, *, selector: str = "", fields: str = "") -> Reflector[JobView]:
        store = Store[JobView](resource)

        def observe(before: JobView | None, after: JobView | None) -> None:
            if resource == POD:
                self._model.observe_pod(before, after)
            elif resource == JOB:
                self._model.observe_child(before, after)
            else:
                self._model.observe_job(resource, before, after)
            self._changed.set()

        store.listen(observe)
        namespace = self.job.key.namespace
        return Reflector(self._cluster, store, WHOLE_CODEC, namespace=namespace, selector=selector, fields=fields)


async def _lines(log: Path, tail: int | None) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in read_log(log, lambda: False, KubeletLogOptions(tail=tail)):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest
