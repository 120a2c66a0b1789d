"""What is measured, one function for each phase. `__main__` calls them in order, `table` judges the results."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import msgspec

from bench import machine, work
from bench.bed import Bed
from bench.load import Request
from bench.machine import CpuMeter, Memory
from bench.observer import Observer
from bench.watch import JobLife, Scope
from bench.work import PODS_PER_JOB, TRAINING, Sort
from testbed.admin import path_of
from testbed.operator import OperatorProcess
from testbed.plane import CONTROLLER_MANAGER, KWOK, SCHEDULER

WARM_UP_JOBS = 25
NODES = 10

# What ours gets as well: no limit of its own on requests, and 32 jobs at once. The defaults (20/s and 5) are slower.
_JOB_CONTROLLER_ARGUMENTS = ("--kube-api-qps=5000", "--kube-api-burst=5000", "--concurrent-job-syncs=32")


class Created(msgspec.Struct, frozen=True):
    """How long it took until all objects existed; CPU seconds by process meanwhile."""

    objects: int
    seconds: float
    cpu: dict[str, float]

    @property
    def rate(self) -> float:
        return self.objects / self.seconds


class Compared(msgspec.Struct, frozen=True):
    """Our operator with jobs of one kind, in turns with a loader that creates the same, and is first and last."""

    raw: list[Created]
    operator: list[Created]
    bare_jobs: list[float]
    """Seconds for the jobs alone."""

    @property
    def ratios(self) -> list[float]:
        """Each of our runs to the mean of the raw ones before and after it: what slows the machine slows both."""
        around = zip(self.operator, self.raw, self.raw[1:], strict=False)
        return [ours.seconds / statistics.mean((before.seconds, after.seconds)) for ours, before, after in around]


class Lives(msgspec.Struct, frozen=True):
    """What became of the jobs: seconds from a job's last running pod to the status that says so, each sorted."""

    pods: int
    delays: list[float]
    status_writes: list[int]
    phases: dict[str, int]
    memory: Memory
    peak_at_end: float


class Footprint(msgspec.Struct, frozen=True):
    """Memory of the operator that created all the pods, and of one that was started when they were there."""

    pods: int
    grown: Memory
    restarted: Memory


class Miscounted(Exception):
    """There is not what should be there: the time that was measured means nothing."""


def warm_up(bed: Bed) -> None:
    """The first objects of a resource cost the API server more than the next thousand."""
    bed.progress("warming up")
    with bed.namespace("warm") as namespace:
        bed.raw.send(work.children(namespace, WARM_UP_JOBS))


def raw(bed: Bed, jobs: int, sort: Sort = TRAINING) -> Created:
    """The ceiling: what the operator would create, created by a loader that does nothing else."""
    with bed.namespace("a") as namespace:
        requests = work.children(namespace, jobs, sort)
        with bed.observer(namespace, sort.children(jobs)) as observer:
            return _time(bed, observer, {}, lambda: bed.raw.send(requests))


def job_controller(bed: Bed, jobs: int) -> Created:
    """Kubernetes' own Job controller, which makes no services."""
    with bed.namespace("b") as namespace, _job_controller(bed) as pid:
        with bed.observer(namespace, {"pods": PODS_PER_JOB * jobs}) as observer:
            requests = work.batch_jobs(namespace, jobs)
            return _time(bed, observer, {"controller-manager": pid}, lambda: bed.admin.send(requests))


def operator(bed: Bed, jobs: int, sort: Sort = TRAINING) -> Created:
    """Our operator: from the creation of the first job to the last pod and service of all."""
    with bed.namespace("c") as namespace, bed.operator() as ours:
        with bed.observer(namespace, sort.children(jobs), ours) as observer:
            requests = work.training_jobs(namespace, jobs, sort)
            return _time(bed, observer, {"operator": ours.pid}, lambda: bed.admin.send(requests))


def compared(bed: Bed, jobs: int, sort: Sort, rounds: int) -> Compared:
    found = Compared([raw(bed, jobs, sort)], [], [])
    for _ in range(rounds):
        found.operator.append(operator(bed, jobs, sort))
        found.bare_jobs.append(bare_jobs(bed, jobs, sort))
        found.raw.append(raw(bed, jobs, sort))
    return found


def bare_jobs(bed: Bed, jobs: int, sort: Sort = TRAINING) -> float:
    """Seconds to create the same jobs without an operator: this is part of (c), and not of (a)."""
    with bed.namespace("j") as namespace:
        requests = list(work.training_jobs(namespace, jobs, sort))
        started = time.monotonic()
        bed.admin.send(requests)
        return round(time.monotonic() - started, 3)


def lives(bed: Bed, jobs: int, sort: Sort = TRAINING) -> Lives:
    """The whole lives of jobs, with a scheduler and with KWOK in the place of kubelets."""
    with bed.namespace("d") as namespace, _cluster(bed, sort), bed.operator() as ours:
        with bed.witness(namespace, jobs, sort, ours) as observer:
            bed.admin.send(work.training_jobs(namespace, jobs, sort))
            pods = observer.wait("created")["pods"]
            observer.wait("running")
            memory = _settled_memory(ours)
            bed.progress("all jobs are running; their pods succeed now")
            bed.admin.send(work.pod_reports(namespace, pods, work.succeeded(sort.container)))
            seen = msgspec.convert(observer.wait("ended")["jobs"], dict[str, JobLife])
            return _lives(len(pods), seen.values(), memory, machine.memory_of(ours.pid).peak)


def footprint(bed: Bed, jobs: int) -> Footprint:
    """Memory of the operator with many jobs; the pods' kubelets are the benchmark itself."""
    pods = PODS_PER_JOB * jobs
    with bed.namespace("e", is_last=True) as namespace:
        with bed.operator() as ours:
            with bed.witness(namespace, jobs, TRAINING, ours) as observer:
                bed.admin.send(work.training_jobs(namespace, jobs))
                names = observer.wait("created")["pods"]
                bed.progress("all pods exist; they run now")
                bed.admin.send(work.pod_reports(namespace, names, work.running()))
                observer.wait("running")
            grown = _settled_memory(ours)
        bed.progress("starting another operator on what is there")
        with bed.operator() as ours:
            return Footprint(pods, grown, _settled_memory(ours))


def _time(bed: Bed, observer: Observer, pids: Mapping[str, int], send: Callable[[], None]) -> Created:
    meter = CpuMeter({**bed.pids, "observer": observer.pid, **pids})
    started = time.monotonic()
    send()
    seconds = observer.wait("created")["at"] - started
    cpu = meter.read()
    objects = _counted(bed, observer.scope)
    created = Created(objects, round(seconds, 3), cpu)
    bed.progress(f"{created.objects} objects in {seconds:.2f} s, {created.rate:.0f}/s; CPU seconds {created.cpu}")
    return created


def _counted(bed: Bed, scope: Scope) -> int:
    """The number of objects by the API server's own count: one too many means that something else was measured."""
    expected, found = sum(scope.expected.values()), bed.count(scope.namespace, scope.expected)
    if found != expected:
        raise Miscounted(f"there are {found} objects in {scope.namespace}, and {expected} were to be created")
    return found


@contextmanager
def _job_controller(bed: Bed) -> Iterator[int]:
    bed.plane.start_controller_manager(("job-controller",), arguments=_JOB_CONTROLLER_ARGUMENTS)
    pid = bed.plane.pid(CONTROLLER_MANAGER)
    machine.wait_idle([pid])
    yield pid
    # Before its jobs are deleted: it would go on working.
    bed.plane.kill(CONTROLLER_MANAGER)


@contextmanager
def _cluster(bed: Bed, sort: Sort) -> Iterator[None]:
    """All that jobs need to live."""
    with ExitStack() as stack:
        stack.enter_context(nodes(bed))
        if sort.has_batch_jobs:
            stack.enter_context(_job_controller(bed))
        yield


@contextmanager
def nodes(bed: Bed) -> Iterator[None]:
    """A scheduler, and KWOK in the place of kubelets: pods run until the benchmark ends them."""
    bed.progress(f"starting kube-scheduler and KWOK with {NODES} nodes")
    bed.plane.start_scheduler()
    bed.plane.start_kwok(completes_jobs=False)
    names = bed.plane.add_nodes(NODES)
    yield
    bed.plane.kill(KWOK)
    bed.plane.kill(SCHEDULER)
    bed.admin.send(Request("DELETE", path_of("nodes", None, name)) for name in names)


def _settled_memory(ours: OperatorProcess) -> Memory:
    machine.wait_idle([ours.pid])
    return machine.memory_of(ours.pid)


def _lives(pods: int, seen: Iterable[JobLife], memory: Memory, peak: float) -> Lives:
    jobs = list(seen)
    return Lives(
        pods=pods,
        delays=sorted(round(job.running - job.last_pod_running, 4) for job in jobs),
        status_writes=sorted(job.status_writes for job in jobs),
        phases=dict(Counter(" ".join(job.phases) for job in jobs)),
        memory=memory,
        peak_at_end=peak,
    )
