"""The state of the jobs of a run, as data for the live view and for plain lines.

It is built from the watches of jobs and pods. Deleted pods are remembered, so that the end of each replica is shown
after a job has cleaned up.
"""

import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from trainmaster.client.kind_name import kind_name
from trainmaster.client.restart_number import LastRestart, last_restart, model_of_job
from trainmaster.client.text import duration
from trainmaster.core import condition
from trainmaster.core.condition import Condition
from trainmaster.core.ids import JOB, Key, Resource
from trainmaster.core.observed import SlotLabels
from trainmaster.core.view import OUT_OF_MEMORY, JobView
from trainmaster.core.wire import ObjectMeta, Wire
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.fault import START_ERRORS, signal_of
from trainmaster.lifecycle.model import JobModel
from trainmaster.lifecycle.restart import Restart, Restarts

LINES = 100
"""The last lines of each replica that are remembered."""
LONGEST_LINE = 500
"""Characters of a line that are remembered."""

Outcome = Literal["", "succeeded", "failed", "refused", "deleted"]

_ENDED = ("Succeeded", "Failed")
_CAUSES = {
    "Timeout": "the job exceeded its time limit",
    "Preempted": "the job was preempted",
    "NodeFail": "a node of the job failed",
}
"""Why replicas were stopped that did not fail, by the phase in which their job ends."""
_STARTING = ("", "ContainerCreating", "PodInitializing")


class Notice(msgspec.Struct, frozen=True):
    """An Event of a job or of one of its pods; ``what`` is the job, with the replica if it is about a pod."""

    what: str
    type: str
    reason: str
    message: str

    @property
    def is_shown(self) -> bool:
        """A warning of a pod that its state does not say."""
        return self.type == "Warning" and " " in self.what and self.reason not in ("BackOff", "Failed")

    def __str__(self) -> str:
        return f"{self.what} {self.reason}: {self.message}"


class Replica(msgspec.Struct, frozen=True):
    """``state`` is one word; ``why`` is the reason of an abnormal state."""

    name: str
    pod: str
    state: str
    why: str = ""
    restarts: int = 0
    since: datetime | None = None
    until: datetime | None = None
    lines: tuple[str, ...] = ()
    """The last lines of its log."""
    line_count: int = 0
    """All lines of its log."""
    restart_at: datetime | None = None
    """When its container restarts, while it waits for that."""

    @property
    def is_over(self) -> bool:
        return self.state in (*_ENDED, "Stopped")


class Job(msgspec.Struct, frozen=True):
    kind: str
    name: str
    phase: str = ""
    message: str = ""
    outcome: Outcome = ""
    since: datetime | None = None
    until: datetime | None = None
    replicas: tuple[Replica, ...] = ()
    restart_at: datetime | None = None
    """When its failed replicas restart, while they wait for that."""
    restart: LastRestart | None = None
    """The last one, also if it is over."""
    failure: Failure | None = None
    """What it has failed of."""
    title: str = ""
    """What distinguishes it from the other jobs of the run."""

    @property
    def sentence(self) -> str:
        """Its message; of a job that has ended also after how long, from its creation, and after how many restarts."""
        if self.outcome not in ("succeeded", "failed") or not self.since or not self.until:
            return self.message
        restarts = f" after {self.restart.count}" if self.restart and self.restart.number else ""
        end = f"{self.outcome} in {duration(self.since, self.until)}{restarts}"
        return f"{self.message}; {end}" if self.outcome == "failed" and self.message else end

    def __str__(self) -> str:
        return self.title or f"{self.kind.lower()}/{self.name}"


class LogSource(msgspec.Struct, frozen=True):
    """One run of one container."""

    uid: str
    pod: Key
    container: str
    run: int
    """How often the container was restarted before, in this pod."""
    label: str
    role: str
    file: Path | None = None
    """The log, if the pod was deleted and its log is kept on this machine."""


# --- the wire ---


class _Waiting(Wire, frozen=True):
    reason: str = ""
    message: str = ""


class _Running(Wire, frozen=True):
    started_at: datetime | None = None


class _Terminated(Wire, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class _ContainerState(Wire, frozen=True):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _Container(Wire, frozen=True):
    name: str
    restart_count: int = 0
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _PodCondition(Wire, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class _PodStatus(Wire, frozen=True):
    phase: str = ""
    conditions: tuple[_PodCondition, ...] = ()
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    container_statuses: tuple[_Container, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()

    @property
    def containers(self) -> tuple[_Container, ...]:
        return (*self.init_container_statuses, *self.container_statuses)


class _Resources(Wire, frozen=True):
    limits: dict[str, Any] | None = None


class _ContainerSpec(Wire, frozen=True):
    name: str
    resources: _Resources = _Resources()


class _PodSpec(Wire, frozen=True):
    containers: tuple[_ContainerSpec, ...] = ()
    init_containers: tuple[_ContainerSpec, ...] = ()
    termination_grace_period_seconds: int = 30

    def memory_limit(self, container: str) -> str:
        limits = [(each.resources.limits or {}).get("memory", "") for each in self.containers if each.name == container]
        return str(limits[0]) if limits else ""


class _Owner(Wire, frozen=True):
    uid: str = ""
    name: str = ""
    controller: bool = False
    kind: str = ""


class _PodMeta(ObjectMeta, frozen=True):
    owner_references: tuple[_Owner, ...] = ()

    @property
    def controller(self) -> _Owner:
        return next((owner for owner in self.owner_references if owner.controller), _Owner())


class _Pod(Wire, frozen=True):
    metadata: _PodMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _Ending(Wire, frozen=True):
    phase: str = ""


class _JobStatus(Wire, frozen=True):
    phase: str = ""
    failure: Failure | None = None
    ending: _Ending = _Ending()
    conditions: tuple[Condition, ...] = ()
    restarts: dict[str, Restarts] | int = 0
    """By role, or only their number, as a kind has it."""
    restart_history: tuple[Restart, ...] = ()


class _Job(Wire, frozen=True):
    metadata: ObjectMeta
    status: _JobStatus = _JobStatus()


class _Child(Wire, frozen=True):
    metadata: _PodMeta


class _Object(Wire, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Event(Wire, frozen=True):
    involved_object: _Object = _Object()
    type: str = ""
    reason: str = ""
    message: str = ""


_POD = msgspec.json.Decoder(_Pod)
_CHILD = msgspec.json.Decoder(_Child)
_JOB = msgspec.json.Decoder(_Job)
_EVENT = msgspec.json.Decoder(_Event)
_BACK_OFF = re.compile(r"back-off (?:(\d+)m)?(\d+)s ")


# --- the model ---


class RunModel:
    """``slots`` are the labels, by resource, that name a pod's replica; ``kinds`` know the limits of restarts;
    ``has_many`` is set for several jobs, whose replicas may have the same names."""

    def __init__(
        self,
        slots: Mapping[Resource, Sequence[SlotLabels]],
        *,
        kinds: Mapping[Resource, ResourceKinds] | None = None,
        has_many: bool = False,
    ) -> None:
        self._slots = slots
        self._served = kinds or {}
        self._has_many = has_many
        self.label_width = 0
        """The length of the longest label so far."""
        self._jobs: dict[tuple[Resource, Key], _Job] = {}
        self._models: dict[tuple[Resource, Key], JobModel | None] = {}
        """What the specs say."""
        self._kinds: dict[str, Resource] = {}
        self._parents: dict[str, _Owner] = {}
        """The owners of batch Jobs. A pod of a batch Job belongs to the Job's owner."""
        self._deleted: set[tuple[Resource, Key]] = set()
        self._pods: dict[str, _Pod] = {}
        self._stopped: set[str] = set()
        """Pods that were deleted before they ended."""
        self._gone: set[str] = set()
        self._lines: dict[str, deque[str]] = {}
        self._line_counts: Counter[str] = Counter()
        self._unfinished: dict[str, str] = {}
        """By pod: an incomplete line after its last complete one."""
        self._warnings: dict[str, Notice] = {}
        """The last one of each pod."""
        self._why_stopped = ""

    def expect(self, resource: Resource, uid: str) -> None:
        """Registers a created job: the watch may show its pods first."""
        self._kinds[uid] = resource

    def observe_job(self, resource: Resource, before: JobView | None, after: JobView | None) -> None:
        view = after or before
        if view is None:
            return
        place = (resource, view.key)
        self.expect(resource, view.uid)
        if after is None:
            self._deleted.add(place)
        else:
            self._jobs[place] = _JOB.decode(after.raw)
            self._models[place] = model_of_job(self._served[resource], after) if resource in self._served else None

    def observe_child(self, _before: JobView | None, after: JobView | None) -> None:
        """A batch Job of a job. It is not forgotten when it is deleted, since its pods may still be shown."""
        if after is not None:
            self._parents[after.uid] = _CHILD.decode(after.raw).metadata.controller

    def observe_pod(self, before: JobView | None, after: JobView | None) -> str:
        """Returns the uid of the pod that changed."""
        if after is None:
            uid = before.uid if before else ""
            self._gone.add(uid)
            return uid
        old, pod = self._pods.get(after.uid), _POD.decode(after.raw)
        if after.deleting and (old or pod).status.phase not in _ENDED:
            self._stopped.add(after.uid)
        self._pods[after.uid] = pod
        if old is None:
            containers = (*pod.spec.init_containers, *pod.spec.containers)
            labels = [self.label(after.uid, container.name) for container in containers]
            self.label_width = max((self.label_width, *map(len, labels)))
        return after.uid

    def observe_deleted(self, pod: JobView, job: JobView) -> bool:
        """A pod that was deleted before; False if it is not one of the job."""
        found = _POD.decode(pod.raw)
        if not _is_of(found.metadata, job):
            return False
        self._parents.setdefault(found.metadata.controller.uid, _Owner(job.uid, job.key.name))
        self._pods[pod.uid] = found
        self._gone.add(pod.uid)
        return True

    def observe_line(self, uid: str, text: str) -> None:
        self._unfinished.pop(uid, None)
        self._lines.setdefault(uid, deque(maxlen=LINES)).append(text[:LONGEST_LINE])
        self._line_counts[uid] += 1

    def observe_skipped(self, uid: str, count: int) -> None:
        """Lines whose text is not shown."""
        self._line_counts[uid] += count

    def observe_unfinished(self, uid: str, text: str) -> None:
        self._unfinished[uid] = text[:LONGEST_LINE]

    def observe_event(self, event: JobView) -> Notice | None:
        """Returns it if it is about a job of the run or one of its pods."""
        found = _EVENT.decode(event.raw)
        about = found.involved_object
        if about.uid in self._kinds:
            what = self._title(self._kinds[about.uid], Key(about.namespace, about.name))
            return Notice(what, found.type, found.reason, found.message)
        pod = self._pods.get(about.uid)
        owner = self._owner(pod) if pod else _Owner()
        if pod is None or owner.uid not in self._kinds:
            return None
        job = self._title(self._kinds[owner.uid], Key(pod.metadata.namespace, owner.name))
        what = f"{job} {self._replica_name(pod)}"
        notice = Notice(what, found.type, found.reason, found.message)
        if notice.is_shown:
            self._warnings[about.uid] = notice
        return notice

    def stop(self, why: str) -> None:
        """The run is stopped: jobs that have not ended have this reason from now on."""
        self._why_stopped = why

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(self._job(*place) for place in self._jobs)

    def outcome(self, resource: Resource, key: Key) -> Outcome:
        job = self._jobs.get((resource, key))
        outcome = _outcome(job.status.conditions) if job else ""
        return outcome or ("deleted" if (resource, key) in self._deleted else "")

    @property
    def has_active_pods(self) -> bool:
        """True while a pod exists that has not ended."""
        return any(pod.status.phase not in _ENDED for uid, pod in self._pods.items() if uid not in self._gone)

    @property
    def longest_grace(self) -> int:
        """The longest grace period of the pods."""
        graces = [pod.spec.termination_grace_period_seconds for uid, pod in self._pods.items() if uid not in self._gone]
        return max(graces, default=0)

    def label(self, uid: str, container: str) -> str:
        """The prefix of a log line: the replica, or the pod if there are several jobs, and the container if the pod has
        several."""
        pod = self._pods.get(uid)
        if pod is None:
            return container
        name = self._replica_name(pod)
        if self._has_many:
            name = pod.metadata.name
        many = len(pod.spec.containers) + len(pod.spec.init_containers) > 1
        return f"{name}/{container}" if many else name

    def log_sources(self, owner: str) -> list[LogSource]:
        """The containers of a job's pods that have started, sorted by replica; ``owner`` is the uid of the job."""
        found = [
            LogSource(
                uid,
                Key(pod.metadata.namespace, pod.metadata.name),
                container.name,
                container.restart_count,
                self.label(uid, container.name),
                self._role(pod),
            )
            for uid, pod in self._pods.items()
            if uid not in self._gone and self._owner(pod).uid == owner
            for container in pod.status.containers
            if container.restart_count or container.state.running or container.state.terminated
        ]
        return sorted(found, key=lambda source: natural(source.label))

    def deleted_source(self, uid: str, container: str, run: int, file: Path) -> LogSource:
        """The kept log of a container of a deleted pod."""
        pod = self._pods[uid]
        key = Key(pod.metadata.namespace, pod.metadata.name)
        return LogSource(uid, key, container, run, self.label(uid, container), self._role(pod), file)

    def pod_name(self, uid: str) -> str:
        pod = self._pods.get(uid)
        return pod.metadata.name if pod else uid

    def _job(self, resource: Resource, key: Key) -> Job:
        job = self._jobs[resource, key]
        conditions = job.status.conditions
        finished = condition.find(conditions, condition.FINISHED)
        is_finished = condition.is_true(conditions, condition.FINISHED)
        found = Job(
            kind=resource.kind,
            name=key.name,
            title=self._title(resource, key),
            phase=finished.reason if finished and is_finished else job.status.phase,
            message=message_of(conditions),
            outcome=self.outcome(resource, key),
            since=job.metadata.creation_timestamp,
            until=finished.last_transition_time if finished and is_finished else None,
            replicas=self._replicas(job.metadata.uid, _CAUSES.get(job.status.ending.phase or job.status.phase, "")),
            restart_at=None if is_finished else _next_restart(job.status),
            restart=last_restart(job.status.restart_history, job.status.restarts, self._models[resource, key]),
            failure=job.status.failure,
        )
        if not self._why_stopped or found.outcome in ("succeeded", "failed", "refused"):
            return found
        phase = "Stopped" if all(replica.is_over for replica in found.replicas) else "Stopping"
        message = f"{self._why_stopped}{_last_restart(job.status.restart_history)}"
        return msgspec.structs.replace(found, phase=phase, message=message, restart_at=None)

    def _title(self, resource: Resource, key: Key) -> str:
        """Jobs of several groups, or in several namespaces, may have the same name."""
        where = f" in {key.namespace}" if self._has_many and key.namespace not in ("", "default") else ""
        return f"{kind_name(resource)}/{key.name}{where}"

    def _replicas(self, owner: str, cause: str) -> tuple[Replica, ...]:
        """``cause`` is the reason of stopped replicas."""
        replicas: dict[str, Replica] = {}
        for uid, pod in self._pods.items():  # in the order of creation: a newer pod replaces the older one
            if self._owner(pod).uid == owner:
                replica = self._replica(uid, pod, cause)
                if earlier := replicas.get(replica.name):
                    restarts = earlier.restarts + replica.restarts + 1
                    replica = msgspec.structs.replace(replica, restarts=restarts, lines=replica.lines or earlier.lines)
                replicas[replica.name] = replica
        return tuple(sorted(replicas.values(), key=lambda replica: natural(replica.name)))

    def _replica(self, uid: str, pod: _Pod, cause: str) -> Replica:
        state, why = self._state(uid, pod, cause)
        ends = [c.state.terminated.finished_at for c in pod.status.container_statuses if c.state.terminated]
        return Replica(
            name=self._replica_name(pod),
            pod=pod.metadata.name,
            state=state,
            why=why,
            restarts=sum(c.restart_count for c in pod.status.container_statuses),
            since=pod.status.start_time or pod.metadata.creation_timestamp,
            until=max((end for end in ends if end), default=None) if state in (*_ENDED, "Stopped") else None,
            lines=self._last_lines(uid),
            line_count=self._line_counts[uid],
            restart_at=None if uid in self._stopped else _restart_of(pod.status),
        )

    def _last_lines(self, uid: str) -> tuple[str, ...]:
        unfinished = (self._unfinished[uid],) if uid in self._unfinished else ()
        return (*self._lines.get(uid, ()), *unfinished)

    def _replica_name(self, pod: _Pod) -> str:
        owner = self._owner(pod)
        resource = self._kinds.get(owner.uid)
        for slots in self._slots.get(resource, ()) if resource else ():
            if slot := slots.slot_of(pod.metadata.labels):
                role, index = slot
                # Without an index the pod's name distinguishes replicas: job-coordinator, job-collector-x7k2p.
                return f"{role.lower()}-{index}" if slots.index else pod.metadata.name.removeprefix(f"{owner.name}-")
        return pod.metadata.name

    def _role(self, pod: _Pod) -> str:
        resource = self._kinds.get(self._owner(pod).uid)
        places = (slots.slot_of(pod.metadata.labels) for slots in self._slots.get(resource, ())) if resource else ()
        return next((place[0].lower() for place in places if place), "")

    def _owner(self, pod: _Pod) -> _Owner:
        controller = pod.metadata.controller
        return self._parents.get(controller.uid, controller)

    def _state(self, uid: str, pod: _Pod, cause: str) -> tuple[str, str]:
        if uid in self._stopped:
            return ("Stopped" if uid in self._gone or pod.status.phase in _ENDED else "Stopping"), cause
        status = pod.status
        if status.phase in _ENDED:
            return status.phase, _failure(pod) if status.phase == "Failed" else ""
        for container in status.containers:
            waiting = container.state.waiting
            if waiting and waiting.reason not in _STARTING:
                return waiting.reason, waiting.message
        for each in status.conditions:
            if (each.type, each.status) == ("PodScheduled", "False"):
                return each.reason, each.message
        if status.phase not in ("", "Pending"):
            return status.phase, ""
        warning = self._warnings.get(uid)
        return (warning.reason, warning.message) if warning else ("Starting", "")


def _is_of(pod: _PodMeta, job: JobView) -> bool:
    """A pod of a batch Job names the job of the batch Job in a label: the batch Job may be deleted, too."""
    if pod.controller.kind != JOB.kind:
        return pod.controller.uid == job.uid
    created, pod_created = _JOB.decode(job.raw).metadata.creation_timestamp, pod.creation_timestamp
    is_newer = created is None or pod_created is None or pod_created >= created
    return is_newer and pod.namespace == job.key.namespace and job.key.name in pod.labels.values()


def _outcome(conditions: condition.Conditions) -> Outcome:
    if (is_good := condition.has_succeeded(conditions)) is not None:
        return "succeeded" if is_good else "failed"
    accepted = condition.find(conditions, condition.ACCEPTED)
    return "refused" if accepted and accepted.status == "False" else ""


def message_of(conditions: condition.Conditions) -> str:
    """The message of the end or of a failure; without one that of the phase, whose condition is the last."""
    accepted = condition.find(conditions, condition.ACCEPTED)
    if accepted and accepted.status == "False":
        return accepted.message
    for type_ in (condition.FINISHED, condition.POD_CREATE_FAILED, condition.CONTAINER_CREATE_FAILED):
        failure = condition.find(conditions, type_)
        if failure and failure.status == "True":
            return failure.message
    return conditions[-1].message if conditions else ""


def _failure(pod: _Pod) -> str:
    """``exit code 139 (SIGSEGV)``, or the node's message if no program ran."""
    for container in pod.status.containers:
        ended = container.state.terminated
        if ended and ended.exit_code:
            why = signal_of(ended.exit_code) if ended.reason in ("", "Error") else ended.reason
            if ended.reason == OUT_OF_MEMORY and (limit := pod.spec.memory_limit(container.name)):
                why += f" at its limit of {limit}"
            # The message of a program that ran is its last output, which is shown by itself.
            message = ended.message if ended.reason in START_ERRORS else pod.status.message
            return f"exit code {ended.exit_code}{f' ({why})' if why else ''}{f': {message}' if message else ''}"
    return ": ".join(part for part in (pod.status.reason, pod.status.message) if part)


def _last_restart(history: Sequence[Restart]) -> str:
    """What a stopped job has failed of before."""
    return f"; its last restart was because {history[-1].describe()}" if history else ""


def _next_restart(status: _JobStatus) -> datetime | None:
    restarts = status.restarts.values() if isinstance(status.restarts, dict) else ()
    return max((each.next_time for each in restarts if each.next_time), default=None)


def _restart_of(status: _PodStatus) -> datetime | None:
    """When a container restarts that waits for it, by the message that kubelets write."""
    for container in status.containers:
        waiting, ended = container.state.waiting, container.last_state.terminated
        if waiting and ended and ended.finished_at and (match := _BACK_OFF.match(waiting.message)):
            return ended.finished_at + timedelta(minutes=int(match[1] or 0), seconds=int(match[2]))
    return None


def natural(name: str) -> tuple[Any, ...]:
    """Sorts replica-10 after replica-9."""
    role, _, index = name.rpartition("-")
    return (role, int(index)) if index.isdecimal() else (name, 0)
