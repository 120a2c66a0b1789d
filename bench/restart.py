"""A job of 500 pods starts again as a whole: how long that takes, and what other jobs notice of it."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from bench import work
from bench.bed import Bed
from bench.load import Request
from bench.observer import Observer
from bench.phase import nodes
from testbed.admin import MERGE, path_of

PODS = 500
SMALL_EVERY = 0.1
"""Seconds between two small jobs: one core is hardly busy with them."""
IDLE_SECONDS = 12.0
ENOUGH = 100
"""Of fewer small jobs the p99 is the maximum: the big one restarts until there are as many, but not more often than"""
ROUNDS = 3


class Restart(msgspec.Struct):
    """Seconds from the first delete, or from the fault, until all pods were created anew.

    The others are seconds from the creation of each small job to that of its pod, sorted: ``idle`` alone, ``beside``
    while our operator restarts the big job, and ``beside_raw`` while the loader does and our operator has nothing else
    to do. What that takes longer than ``idle`` is the machine's share.
    """

    pods: int
    raw: list[float]
    operator: float
    idle: list[float]
    beside_raw: list[float]
    beside: list[float]

    @property
    def ratio(self) -> float:
        return self.operator / statistics.mean(self.raw)


def measure(bed: Bed, pods: int = PODS) -> Restart:
    with nodes(bed):
        before = _raw(bed, pods)
        ours, idle, beside = _operator(bed, pods)
        beside_raw = _beside_raw(bed, pods)
        return Restart(pods, [before, _raw(bed, pods)], ours, idle, beside_raw, beside)


class _ByLoader:
    """The ceiling: a loader deletes the pods, waits until they are gone, and creates them again."""

    def __init__(self, bed: Bed, namespace: str, pods: int, observer: Observer) -> None:
        self._bed = bed
        self._observer = observer
        self._creates = [request for request in work.big_children(namespace, pods) if "/pods" in request.path]
        self._deletes = list(_deletes(namespace, self._creates))
        bed.raw.send(self._creates)

    def __call__(self, times: int) -> float:
        """The how many-th restart this is; answers its seconds."""
        started = time.monotonic()
        self._bed.raw.send(self._deletes)
        self._observer.wait(f"gone {times}")
        self._bed.raw.send(self._creates)
        return float(self._observer.wait(f"created {times + 1}")["at"]) - started


class _ByOperator:
    """Our operator restarts the job because its first pod fails."""

    def __init__(self, bed: Bed, namespace: str, pods: int, observer: Observer) -> None:
        self._bed = bed
        self._observer = observer
        self._path = path_of("pods", namespace, f"{work.BIG}-trainer-0", "status")
        bed.admin.send([work.big_job(namespace, pods)])

    def __call__(self, times: int) -> float:
        """The how many-th restart this is; answers its seconds."""
        started = time.monotonic()
        self._bed.admin.send([Request("PATCH", self._path, {"status": work.failed()}, MERGE)])
        return float(self._observer.wait(f"created {times + 1}")["at"]) - started


def _raw(bed: Bed, pods: int) -> float:
    with bed.namespace("h") as namespace, bed.turnover(namespace, pods) as observer:
        restart = _ByLoader(bed, namespace, pods, observer)
        _wait_running(bed, observer, 1)
        return _reported(bed, "the loader", restart(1))


def _beside_raw(bed: Bed, pods: int) -> list[float]:
    with bed.namespace("h") as namespace, bed.operator() as ours, bed.turnover(namespace, pods, ours) as observer:
        restart = _ByLoader(bed, namespace, pods, observer)
        return _beside(bed, namespace, observer, restart, 1)


def _operator(bed: Bed, pods: int) -> tuple[float, list[float], list[float]]:
    """The small jobs alone, while the big one just runs; a restart alone; both together."""
    with bed.namespace("h") as namespace, bed.operator() as ours, bed.turnover(namespace, pods, ours) as observer:
        restart = _ByOperator(bed, namespace, pods, observer)
        _wait_running(bed, observer, 1)
        with _small_jobs(bed, namespace, "idle", observer) as idle:
            time.sleep(IDLE_SECONDS)
        bed.settle()
        seconds = _reported(bed, "the operator", restart(1))
        return seconds, sorted(idle), _beside(bed, namespace, observer, restart, 2)


def _beside(bed: Bed, namespace: str, observer: Observer, restart: Callable[[int], float], first: int) -> list[float]:
    """How long small jobs took that were created while the big one restarted, in restarts from this one on."""
    took: list[float] = []
    for times in range(first, first + ROUNDS):
        _wait_running(bed, observer, times)
        with _small_jobs(bed, namespace, f"small-{times}", observer) as found:
            seconds = restart(times)
        took += found
        bed.progress(f"{len(found)} small jobs in a restart of {seconds:.2f} s took {max(found):.2f} s at most")
        if len(took) >= ENOUGH:
            break
    return sorted(took)


def _wait_running(bed: Bed, observer: Observer, times: int) -> None:
    observer.wait(f"running {times}")
    bed.settle()


@contextmanager
def _small_jobs(bed: Bed, namespace: str, prefix: str, observer: Observer) -> Iterator[list[float]]:
    """Create one after the other for as long as the context lasts, whatever becomes of those before. Afterwards, it
    has filled in how long each took to get its pod."""
    took: list[float] = []
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        creation = pool.submit(_create_small_jobs, bed, namespace, prefix, is_over)
        try:
            yield took
        finally:
            is_over.set()
    took += [observer.wait(name)["took"] for name in creation.result()]


def _create_small_jobs(bed: Bed, namespace: str, prefix: str, is_over: threading.Event) -> list[str]:
    """In a thread of its own; answers the names."""
    names: list[str] = []
    due = time.monotonic()
    while not is_over.wait(max(0.0, due - time.monotonic())):
        names.append(f"{prefix}-{len(names):03}")
        bed.beside.send([work.small_job(namespace, names[-1])])
        due += SMALL_EVERY
    return names


def _deletes(namespace: str, creates: Sequence[Request]) -> Iterator[Request]:
    names = (request.body["metadata"]["name"] for request in creates if request.body)
    return (Request("DELETE", path_of("pods", namespace, name)) for name in names)


def _reported(bed: Bed, who: str, seconds: float) -> float:
    bed.progress(f"{who} had all pods created again after {seconds:.2f} s")
    return round(seconds, 3)
