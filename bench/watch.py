"""The observer: a process of its own that watches one namespace and says on stdout what it sees, one JSON a line.

    python -m bench.watch FILE       (FILE holds a Scope)

Apart from the benchmark, so that measuring and loading do not wait for each other. Times are of the monotonic
clock, which all processes of a machine share. `observer` starts it and listens.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import aiohttp
import msgspec
import uvloop

from bench.work import SORTS, phase_of
from testbed.admin import path_of
from trainmaster.core.view import version_of
from trainmaster.kinds.aitrainingjob.labels import TRAINING_JOB_NAME
from trainmaster.kinds.aitrainingjob.status import RUNNING
from trainmaster.kube.line import LineBuffer

WHOLE = "application/json"
# A tenth of the bytes, and nothing for us to decode.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

REPORT_PERIOD = 1.0
WATCH_SECONDS = 3600


class Scope(msgspec.Struct, frozen=True):
    """Where to look and what to wait for. Without a job resource only the creation is observed."""

    url: str
    token: str
    ca_file: str
    namespace: str
    expected: dict[str, int]
    job_resource: str = ""
    jobs: int = 0
    big: str = ""
    """The job whose pods come and go; its number of pods is what is expected."""


class JobLife(msgspec.Struct):
    """What was seen of one job: times of the monotonic clock, 0 while it did not happen."""

    last_pod_running: float = 0.0
    running: float = 0.0
    status_writes: int = 0
    phases: list[str] = []


class Source(NamedTuple):
    """One watch: what, in which form, and who takes its lines."""

    resource: str
    accept: str
    take: Callable[[bytes], None]


class Tally(Protocol):
    """What is made of the lines."""

    @property
    def sources(self) -> list[Source]: ...

    def counts(self) -> dict[str, int]: ...


def say(word: str, **said: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode({"said": word, **said}) + b"\n")
    sys.stdout.buffer.flush()


class Creation:
    """Counts objects as they appear; says `created` with the time of the last one."""

    def __init__(self, scope: Scope) -> None:
        self._missing = dict(scope.expected)
        self._expected = scope.expected
        self.sources = [Source(resource, METADATA, self._counter(resource)) for resource in scope.expected]

    def counts(self) -> dict[str, int]:
        return {resource: self._expected[resource] - missing for resource, missing in self._missing.items()}

    def _counter(self, resource: str) -> Callable[[bytes], None]:
        def take(line: bytes) -> None:
            if line.startswith(b'{"type":"ADDED"'):
                self._missing[resource] -= 1
                if not any(self._missing.values()):
                    say("created", at=time.monotonic())

        return take


class _Meta(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _PodLine(msgspec.Struct):
    type: str
    object: _Pod


class _Job(msgspec.Struct):
    metadata: _Meta
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _JobLine(msgspec.Struct):
    type: str
    object: _Job


_POD_LINE = msgspec.json.Decoder(_PodLine)
_JOB_LINE = msgspec.json.Decoder(_JobLine)


class Life:
    """Follows jobs and their pods to the end; says `created` with the names of the pods, `running`, and `ended` with
    all that was seen."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._sort = SORTS[scope.job_resource]
        self._jobs: dict[str, JobLife] = {}
        self._statuses: dict[str, bytes] = {}
        self._pods: set[str] = set()
        self._running_pods: set[str] = set()
        self._running = 0
        self._ended = 0
        self.sources = [
            Source("pods", WHOLE, self._take_pod),
            Source(scope.job_resource, WHOLE, self._take_job),
        ]

    def counts(self) -> dict[str, int]:
        return {
            "pods": len(self._pods),
            "running pods": len(self._running_pods),
            "running jobs": self._running,
            "ended jobs": self._ended,
        }

    def _take_pod(self, line: bytes) -> None:
        pod = _POD_LINE.decode(line).object
        name = pod.metadata.name
        if name not in self._pods:
            self._pods.add(name)
            if len(self._pods) == self._scope.expected["pods"]:
                say("created", at=time.monotonic(), pods=sorted(self._pods))
        if pod.status.phase == RUNNING and name not in self._running_pods:
            self._running_pods.add(name)
            self._life(pod.metadata.labels[self._sort.name_label]).last_pod_running = time.monotonic()

    def _take_job(self, line: bytes) -> None:
        job = _JOB_LINE.decode(line).object
        status, life = bytes(job.status), self._life(job.metadata.name)
        if status == self._statuses.setdefault(job.metadata.name, b"{}"):
            return
        self._statuses[job.metadata.name] = status
        life.status_writes += 1
        if not life.running and self._sort.runs(status):
            life.running = time.monotonic()
            self._running += 1
            if self._running == self._scope.jobs:
                say("running")
        phase = phase_of(status)
        if not life.phases or life.phases[-1] != phase:
            life.phases.append(phase)
            self._enter(phase)

    def _enter(self, phase: str) -> None:
        if phase in self._sort.ended:
            self._ended += 1
            if self._ended == self._scope.jobs:
                say("ended", jobs=self._jobs)

    def _life(self, job: str) -> JobLife:
        return self._jobs.setdefault(job, JobLife())


class Turnover:
    """Follows the pods of one big job through its restarts: says `created`, `running` and `gone`, each with the how
    many-th time it is. And small jobs beside it: when one has its pod, it says how long that took."""

    def __init__(self, scope: Scope) -> None:
        self._big, self._size = scope.big, scope.expected["pods"]
        self._seen = {"created": 0, "running": 0, "gone": 0}
        self._running_pods: set[str] = set()
        self._since: dict[str, float] = {}
        self._small = 0
        self.sources = [
            Source("pods", WHOLE, self._take_pod),
            Source(scope.job_resource, METADATA, self._take_job),
        ]

    def counts(self) -> dict[str, int]:
        return self._seen | {"small jobs": self._small}

    def _take_pod(self, line: bytes) -> None:
        found = _POD_LINE.decode(line)
        meta = found.object.metadata
        job = meta.labels[TRAINING_JOB_NAME]
        if job != self._big:
            if found.type == "ADDED":
                self._end(job)
        elif found.type == "ADDED":
            self._count("created")
        elif found.type == "DELETED":
            self._running_pods.discard(meta.name)
            self._count("gone")
        elif found.object.status.phase == RUNNING and meta.name not in self._running_pods:
            self._running_pods.add(meta.name)
            self._count("running")

    def _count(self, what: str) -> None:
        self._seen[what] += 1
        times, rest = divmod(self._seen[what], self._size)
        if not rest:
            say(f"{what} {times}", at=time.monotonic())

    def _take_job(self, line: bytes) -> None:
        if line.startswith(b'{"type":"ADDED"'):
            self._since[_JOB_LINE.decode(line).object.metadata.name] = time.monotonic()

    def _end(self, job: str) -> None:
        now = time.monotonic()
        self._small += 1
        say(job, took=round(now - self._since.get(job, now), 4))


def tally_of(scope: Scope) -> Tally:
    if scope.big:
        return Turnover(scope)
    return Life(scope) if scope.job_resource else Creation(scope)


async def observe(scope: Scope) -> None:
    """Watch until killed."""
    tally = tally_of(scope)
    tls = ssl.create_default_context(cafile=scope.ca_file)
    async with aiohttp.ClientSession(
        scope.url,
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={"Authorization": f"Bearer {scope.token}"},
        timeout=aiohttp.ClientTimeout(),
    ) as session:
        async with asyncio.TaskGroup() as group:
            opened = [asyncio.Event() for _ in tally.sources]
            for source, is_open in zip(tally.sources, opened, strict=True):
                group.create_task(_follow(session, scope, source, is_open))
            for is_open in opened:
                await is_open.wait()
            say("ready")
            await _report(tally)


async def _follow(session: aiohttp.ClientSession, scope: Scope, source: Source, is_open: asyncio.Event) -> None:
    path = path_of(source.resource, scope.namespace)
    wanted = METADATA_LIST if source.accept == METADATA else WHOLE
    async with session.get(path, params={"limit": "1"}, headers={"Accept": wanted}, raise_for_status=True) as answer:
        version = (await answer.json(content_type=None))["metadata"]["resourceVersion"]
    while True:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        async with session.get(path, params=query, headers={"Accept": source.accept}, raise_for_status=True) as watch:
            is_open.set()
            version = await _take_all(watch, source) or version
        # The API server ends a watch whose client does not keep up, as may happen on a busy machine.
        say("resumed", resource=source.resource)


async def _take_all(watch: aiohttp.ClientResponse, source: Source) -> str:
    """All lines of one watch; answers the version of the last of them."""
    buffer, line = LineBuffer(), b""
    async for chunk in watch.content.iter_any():
        for line in buffer.feed(chunk):
            if line.startswith(b'{"type":"ERROR"'):
                raise ConnectionError(f"the watch of {source.resource} failed: {line.decode()}")
            source.take(line)
    return version_of(line) if line else ""


async def _report(tally: Tally) -> None:
    while True:
        await asyncio.sleep(REPORT_PERIOD)
        say("progress", counts=tally.counts())


if __name__ == "__main__":
    given = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Scope)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(observe(given))
