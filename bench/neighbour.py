"""A tenant creates many jobs at once: how long a job of two pods in another namespace takes until it has its pods, and
until it runs. Between the two its pods wait for kube-scheduler, which has one queue for all namespaces."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from bench import work
from bench.bed import Bed
from bench.load import Request
from bench.observer import Stuck
from bench.phase import nodes
from bench.work import PODS_PER_JOB, TRAINING_JOBS
from testbed.admin import path_of
from trainmaster.kinds.aitrainingjob.labels import TRAINING_JOB_NAME

JOBS = 200
PODS = 2
ALONE = 5
"""Jobs one after the other, while there are no others."""
POLL = 0.02
PATIENCE = 180.0


class Taken(NamedTuple):
    """Seconds from the creation of a job until its pods are there, and until its status says that it runs."""

    pods: float
    running: float


class Neighbour(msgspec.Struct, frozen=True):
    """Of jobs in one namespace: ``alone``, ``beside`` the jobs of the
    other tenant, and ``beside_raw`` while a loader creates the same pods and services and our operator has nothing else
    to do. What that takes longer than ``alone`` is the machine's share."""

    jobs: int
    alone: list[Taken]
    beside_raw: list[Taken]
    beside: list[Taken]

    @property
    def ratio(self) -> float:
        """Of the slowest job, until it has its pods, to the usual time."""
        return max(took.pods for took in self.beside) / statistics.median(took.pods for took in self.alone)


def measure(bed: Bed, jobs: int = JOBS) -> Neighbour:
    with nodes(bed), bed.operator(), bed.namespace("j") as namespace:
        alone = [_seconds(bed, namespace, f"alone-{number}") for number in range(ALONE)]
        beside_raw = _beside(bed, namespace, "raw", jobs, lambda other: bed.raw.send(work.children(other, jobs)))
        beside = _beside(bed, namespace, "ours", jobs, lambda other: bed.admin.send(work.training_jobs(other, jobs)))
        return Neighbour(jobs, alone, beside_raw, beside)


def _beside(bed: Bed, namespace: str, prefix: str, jobs: int, load: Callable[[str], None]) -> list[Taken]:
    """One job after the other, from the beginning of the load until all of its pods are there."""
    took: list[Taken] = []
    with bed.namespace("j") as other, ThreadPoolExecutor(1) as pool:
        bed.settle()
        loading = pool.submit(load, other)
        while not took or not loading.done() or _pods(bed, other, "") < PODS_PER_JOB * jobs:
            took.append(_seconds(bed, namespace, f"{prefix}-{len(took):03}"))
        loading.result()
    bed.progress(f"{len(took)} jobs beside {jobs} ({prefix}) ran after {max(took, key=_running).running:.2f} s at most")
    return took


def _running(took: Taken) -> float:
    return took.running


def _pods(bed: Bed, namespace: str, job: str) -> int:
    """Those of one job, or of all."""
    query = f"labelSelector={TRAINING_JOB_NAME}%3D{job}" if job else "limit=1"
    found = bed.beside.ask(Request("GET", f"{path_of('pods', namespace)}?{query}"))
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))


def _seconds(bed: Bed, namespace: str, name: str) -> Taken:
    began, pods = time.monotonic(), 0.0
    bed.beside.send([work.small_job(namespace, name, pods=PODS)])
    while True:
        if not pods and _pods(bed, namespace, name) == PODS:
            pods = time.monotonic() - began
        job = bed.beside.ask(Request("GET", path_of(TRAINING_JOBS, namespace, name)))
        seconds = time.monotonic() - began
        if job.get("status", {}).get("phase") == "Running":
            return Taken(round(pods or seconds, 3), round(seconds, 3))
        if seconds > PATIENCE:
            raise Stuck(f"job {name} of another namespace does not run after {PATIENCE:.0f} s: {job.get('status')}")
        time.sleep(POLL)
