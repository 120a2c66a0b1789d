"""What the operator measures. Names of client-go, controller-runtime and Kubeflow's training-operator, so that existing
dashboards work."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import Protocol

import structlog
from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from trainmaster.core.condition import FINISHED, Conditions, find, is_true
from trainmaster.core.ids import Key, Resource
from trainmaster.lifecycle.reason import QUEUED
from trainmaster.lifecycle.waiting import BLOCKED
from trainmaster.runtime.job_summary import StatusSummary

log = structlog.get_logger(__name__)

# No series that says since when another one counts.
disable_created_metrics()  # type: ignore[no-untyped-call]

PLAN_BUDGET = 0.1
"""Seconds."""
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

QUEUE_DEPTH = Gauge("workqueue_depth", "Keys that wait to be worked on", ["name"])
QUEUE_ADDS = Counter("workqueue_adds_total", "Keys added", ["name"])
QUEUE_WAIT = Histogram("workqueue_queue_duration_seconds", "How long a key waited", ["name"], buckets=_SECONDS)
QUEUE_WORK = Histogram("workqueue_work_duration_seconds", "How long a pass took", ["name"], buckets=_SECONDS)
QUEUE_RETRIES = Counter("workqueue_retries_total", "Keys tried again after a failure", ["name"])
QUEUE_UNFINISHED = Gauge("workqueue_unfinished_work_seconds", "Age of all passes in hand, added up", ["name"])
QUEUE_LONGEST = Gauge("workqueue_longest_running_processor_seconds", "Age of the oldest pass in hand", ["name"])

RECONCILES = Counter("controller_runtime_reconcile_total", "Passes by result", ["controller", "result"])
RECONCILE_ERRORS = Counter("controller_runtime_reconcile_errors_total", "Passes that failed", ["controller"])
RECONCILE_TIME = Histogram(
    "controller_runtime_reconcile_time_seconds", "How long a pass took", ["controller"], buckets=_SECONDS
)
WORKERS_MAX = Gauge("controller_runtime_max_concurrent_reconciles", "Passes that may run at once", ["controller"])
WORKERS_ACTIVE = Gauge("controller_runtime_active_workers", "Passes that run now", ["controller"])

REQUESTS = Counter("rest_client_requests_total", "Requests to the API server", ["method", "code"])
REQUEST_TIME = Histogram(
    "rest_client_request_duration_seconds", "How long the API server took", ["verb"], buckets=_SECONDS
)

CLOCK_AHEAD = Gauge("trainmaster_clock_ahead_seconds", "How far our clock is ahead of the API server's")
LEADING = Gauge("leader_election_master_status", "1 while this process leads", ["name"])

_OF_JOBS = ("job_namespace", "framework")
JOBS_CREATED = Counter("training_operator_jobs_created_total", "Jobs that were taken up", _OF_JOBS)
JOBS_DELETED = Counter("training_operator_jobs_deleted_total", "Jobs that were deleted", _OF_JOBS)
JOBS_SUCCESSFUL = Counter("training_operator_jobs_successful_total", "Jobs that ended well", _OF_JOBS)
JOBS_FAILED = Counter("training_operator_jobs_failed_total", "Jobs that failed", _OF_JOBS)
JOBS_RESTARTED = Counter("training_operator_jobs_restarted_total", "Restarts for a fault", _OF_JOBS)

_COUNTED_OF_JOBS = (JOBS_CREATED, JOBS_SUCCESSFUL, JOBS_FAILED, JOBS_RESTARTED, JOBS_DELETED)

JOBS = Gauge("trainmaster_jobs", "Jobs that there are", ["kind", "phase"])
LONGEST_WAIT = Gauge(
    "trainmaster_longest_wait_seconds",
    "How long a condition that keeps pods from starting has been True, of the job for which it is longest",
    ["kind", "condition"],
)
CACHE_BEHIND = Gauge(
    "trainmaster_cache_behind_seconds",
    "Time since the cache of a resource was last current; 0 while it is",
    ["resource"],
)
LISTS = Counter("trainmaster_lists_total", "Complete lists of a resource", ["resource"])
UNREADABLE = Counter(
    "trainmaster_unreadable_objects_total",
    "Objects that were left out, or at which a plan failed",
    ["resource"],
)
SLOW_PLANS = Counter("trainmaster_slow_plans_total", "Plans that took longer than their budget", ["kind"])
BARRIER_WAITS = Counter("trainmaster_barrier_waits_total", "Passes put off until our own writes were seen", ["kind"])
ACTIONS = Counter("trainmaster_actions_total", "Writes by what they did", ["verb", "resource"])
STATUS_WRITES = Counter("trainmaster_status_writes_total", "Status patches", ["kind"])
LOG_LINES_DROPPED = Counter("trainmaster_log_lines_dropped_total", "Lines of the log that were not written")
STATUS_REFUSED = Counter(
    "trainmaster_status_writes_refused_total", "Status patches with a field that the definition lacks", ["kind"]
)
EVENTS_DROPPED = Counter("trainmaster_events_dropped_total", "Events that were not sent", ["because"])
for _because in ("queue full", "shut down", "defect", "refused"):
    EVENTS_DROPPED.labels(_because)  # at 0: Prometheus sees no increase in the first value of a series

NEW = "New"
"""The phase of a job of which no status is stored."""
OTHER = "Other"
"""All phases that the kind does not have."""

EMPTY_NAMESPACES = 100
"""How many namespaces without jobs keep their counters, so that the last changes can be read."""


class Cache(Protocol):
    """What keeps one store like the API server."""

    @property
    def resource(self) -> Resource: ...
    @property
    def behind(self) -> float: ...


def observe_caches(caches: Iterable[Cache]) -> None:
    """A resource may have several caches, with other selectors: the one that is furthest behind counts."""
    of_resource: dict[str, list[Cache]] = {}
    for cache in caches:
        of_resource.setdefault(str(cache.resource), []).append(cache)
    for name, members in of_resource.items():
        CACHE_BEHIND.labels(name).set_function(partial(_furthest, members))
        UNREADABLE.labels(name)  # at 0, as above


def _furthest(caches: Sequence[Cache]) -> float:
    return max(cache.behind for cache in caches)


class QueueMetrics:
    """The observer of one queue, with its label children bound once."""

    def __init__(self, name: str) -> None:
        self._adds = QUEUE_ADDS.labels(name)
        self._wait = QUEUE_WAIT.labels(name)
        self._retries = QUEUE_RETRIES.labels(name)

    def added(self) -> None:
        self._adds.inc()

    def taken(self, waited: float) -> None:
        self._wait.observe(max(waited, 0.0))

    def retried(self) -> None:
        self._retries.inc()


class RequestMetrics:
    """The observer of a transport. Label children are bound once: looking them up costs more than counting."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str], Counter] = {}
        self._times: dict[str, Histogram] = {}

    def observe(self, method: str, code: str, seconds: float) -> None:
        if (method, code) not in self._requests:
            self._requests[method, code] = REQUESTS.labels(method, code)
            self._times[method] = REQUEST_TIME.labels(method)
        self._requests[method, code].inc()
        self._times[method].observe(seconds)


class Measured:
    """One pass that is being measured; the caller sets the result."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.result = "success"


class JobMetrics:
    """Jobs of one kind, as the operator that reconciles them observes them."""

    def __init__(self, kind: str, framework: str, phases: Collection[str], now: Callable[[], datetime]) -> None:
        self._kind, self._framework, self._now = kind, framework, now
        self._known = {NEW, *phases}
        self._phases: dict[Key, str] = {}
        self._jobs: dict[str, int] = {}
        self._empty: dict[str, None] = {}
        """Namespaces whose jobs are all gone, the first of them first."""
        self._blocked: dict[str, dict[Key, float]] = {each: {} for each in BLOCKED}
        """Of each condition: the jobs for which it is True, and since when."""
        for each, jobs in self._blocked.items():
            LONGEST_WAIT.labels(kind, each).set_function(partial(self._longest, jobs))

    def shows(self, key: Key, phase: str, conditions: Conditions = ()) -> None:
        """The phase and the conditions that are stored of a job."""
        self._waits(key, conditions)
        before, after = self._phases.get(key), phase or NEW
        if after not in self._known:
            after = OTHER
        if before == after:
            return
        if before is not None:
            JOBS.labels(self._kind, before).dec()
        else:
            self._jobs[key.namespace] = self._jobs.get(key.namespace, 0) + 1
            self._empty.pop(key.namespace, None)
        JOBS.labels(self._kind, after).inc()
        self._phases[key] = after

    def _waits(self, key: Key, conditions: Conditions) -> None:
        """A job in a queue of Kueue is not blocked: Kueue measures how long it waits."""
        has_ended = is_true(conditions, FINISHED)
        for type_, jobs in self._blocked.items():
            found = find(conditions, type_)
            if has_ended or not found or found.status != "True" or found.reason == QUEUED:
                jobs.pop(key, None)
            elif found.last_transition_time:
                jobs[key] = found.last_transition_time.timestamp()

    def _longest(self, jobs: Mapping[Key, float]) -> float:
        return max(self._now().timestamp() - min(jobs.values()), 0.0) if jobs else 0.0

    def is_gone(self, key: Key) -> None:
        self._waits(key, ())
        if (before := self._phases.pop(key, None)) is not None:
            JOBS.labels(self._kind, before).dec()
            JOBS_DELETED.labels(key.namespace, self._framework).inc()
            self._leaves(key.namespace)

    def _leaves(self, namespace: str) -> None:
        self._jobs[namespace] -= 1
        if self._jobs[namespace]:
            return
        del self._jobs[namespace]
        self._empty[namespace] = None
        if len(self._empty) > EMPTY_NAMESPACES:
            oldest = next(iter(self._empty))
            del self._empty[oldest]
            for counter in _COUNTED_OF_JOBS:
                with suppress(KeyError):
                    counter.remove(oldest, self._framework)

    def stored(self, namespace: str, before: StatusSummary, after: StatusSummary) -> None:
        """What a status that we stored says that the one before it did not."""
        labels = (namespace, self._framework)
        # All of them from the first status on: what is 1 when it is first seen, has not increased.
        created, successful, failed, restarted, _ = (counter.labels(*labels) for counter in _COUNTED_OF_JOBS)
        created.inc(not before.phase and before.has_succeeded is None)
        restarted.inc(after.restarts_since(before))
        if before.has_succeeded is None and after.has_succeeded is not None:
            (successful if after.has_succeeded else failed).inc()


class ControllerMetrics:
    """Passes of one controller. Every counter starts at 0, so that a dashboard has no holes."""

    def __init__(self, name: str, workers: int, waiting: Sized) -> None:
        self._name = name
        self._in_hand: dict[Key, Measured] = {}
        self._results = {
            result: RECONCILES.labels(name, result) for result in ("success", "requeue", "requeue_after", "error")
        }
        self._errors = RECONCILE_ERRORS.labels(name)
        self._name, self._slow_plans = name, SLOW_PLANS.labels(name)
        self._times = (RECONCILE_TIME.labels(name), QUEUE_WORK.labels(name))
        WORKERS_MAX.labels(name).set(workers)
        WORKERS_ACTIVE.labels(name).set_function(lambda: float(len(self._in_hand)))
        QUEUE_DEPTH.labels(name).set_function(lambda: float(len(waiting)))
        QUEUE_UNFINISHED.labels(name).set_function(lambda: sum(self._ages()))
        QUEUE_LONGEST.labels(name).set_function(lambda: max(self._ages(), default=0.0))

    @contextmanager
    def pass_of(self, key: Key) -> Iterator[Measured]:
        self._in_hand[key] = measured = Measured(perf_counter())
        try:
            yield measured
        finally:
            del self._in_hand[key]
            for histogram in self._times:
                histogram.observe(perf_counter() - measured.started)
            self._results[measured.result].inc()
            if measured.result == "error":
                self._errors.inc()

    @contextmanager
    def planning(self, key: Key) -> Iterator[None]:
        """A plan that takes long is reported: all jobs share the loop with it."""
        started = perf_counter()
        yield
        if (seconds := perf_counter() - started) > PLAN_BUDGET:
            self._slow_plans.inc()
            log.warning("planning took long", job=str(key), kind=self._name, seconds=round(seconds, 3))

    def _ages(self) -> list[float]:
        now = perf_counter()
        return [now - measured.started for measured in self._in_hand.values()]
