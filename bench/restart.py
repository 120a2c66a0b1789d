"""A job of 500 pods starts again as a whole: how long that takes, and what other jobs notice of it."""

import statistics
import time
from collections.abc import Iterator, Sequence

import msgspec

from bench import work
from bench.bed import Bed
from bench.load import Request
from bench.observer import Observer
from bench.phase import nodes
from bench.work import SMALL_JOBS
from testbed.admin import MERGE, path_of

PODS = 500
SMALL_EVERY = 0.1
"""Seconds between two small jobs: one core is hardly busy with them."""


class Restart(msgspec.Struct):
    """Seconds from the first delete, or from the fault, until all pods were created anew. ``idle`` and ``beside`` are
    seconds from the creation of each small job to that of its pod, sorted: alone, and during a restart."""

    pods: int
    raw: list[float]
    operator: float
    idle: list[float]
    beside: list[float]

    @property
    def ratio(self) -> float:
        return self.operator / statistics.mean(self.raw)


def measure(bed: Bed, pods: int = PODS) -> Restart:
    with nodes(bed):
        before = _raw(bed, pods)
        ours, idle, beside = _operator(bed, pods)
        return Restart(pods, [before, _raw(bed, pods)], ours, idle, beside)


def _raw(bed: Bed, pods: int) -> float:
    """The ceiling: a loader deletes the pods, waits until KWOK let go of them, and creates them again."""
    with bed.namespace("h") as namespace:
        creates = [request for request in work.big_children(namespace, pods) if "/pods" in request.path]
        with bed.turnover(namespace, pods) as observer:
            bed.raw.send(creates)
            observer.wait("running")
            bed.settle()
            started = time.monotonic()
            bed.raw.send(_deletes(namespace, creates))
            observer.wait("gone")
            bed.raw.send(creates)
            return _told(bed, "the loader", observer.wait("created again")["at"] - started)


def _deletes(namespace: str, creates: Sequence[Request]) -> Iterator[Request]:
    names = (request.body["metadata"]["name"] for request in creates if request.body)
    return (Request("DELETE", path_of("pods", namespace, name)) for name in names)


def _operator(bed: Bed, pods: int) -> tuple[float, list[float], list[float]]:
    """Twice: alone, and with small jobs beside it. Before that the small jobs alone, while the big one just runs."""
    with bed.namespace("h") as namespace, bed.operator() as ours:
        with bed.turnover(namespace, pods, ours) as observer:
            bed.admin.send([work.big_job(namespace, pods)])
            observer.wait("running")
            bed.settle()
            idle = _small_jobs(bed, namespace, "idle", observer)
            started = _fail(bed, namespace)
            seconds = _told(bed, "the operator", observer.wait("created again")["at"] - started)
            observer.wait("running again")
            bed.settle()
            _fail(bed, namespace)
            beside = _small_jobs(bed, namespace, "beside", observer)
            observer.wait("created a third time")
    bed.progress(f"a small job took {idle[-1]:.2f} s at most, beside a restart {beside[-1]:.2f} s")
    return seconds, idle, beside


def _fail(bed: Bed, namespace: str) -> float:
    """The first pod fails; answers when."""
    path = path_of("pods", namespace, f"{work.BIG}-trainer-0", "status")
    started = time.monotonic()
    bed.admin.send([Request("PATCH", path, {"status": work.failed()}, MERGE)])
    return started


def _small_jobs(bed: Bed, namespace: str, prefix: str, observer: Observer) -> list[float]:
    """One after the other, whatever becomes of those before; how long each took to get its pod."""
    first = time.monotonic()
    for i in range(SMALL_JOBS):
        time.sleep(max(0.0, first + i * SMALL_EVERY - time.monotonic()))
        bed.admin.send([work.small_job(namespace, f"{prefix}-{i:03}")])
    took: dict[str, float] = observer.wait(f"{prefix} done")["took"]
    return sorted(took.values())


def _told(bed: Bed, who: str, seconds: float) -> float:
    bed.progress(f"{who} had all pods created again after {seconds:.2f} s")
    return round(seconds, 3)
