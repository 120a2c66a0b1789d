"""AITrainingJob: any number of roles, created at once; end policies decide when and how it ends."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.api.aitrainingjob import RESOURCE, AITrainingJob, AITrainingJobStatus, Ending
from trainmaster.core.ids import POD, SERVICE, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Create, Delete, Event, Plan, deletions, normal, warning
from trainmaster.core.policies import completion
from trainmaster.core.policies.cleanup import pods_to_clean
from trainmaster.core.policies.completion import Result
from trainmaster.core.policies.port import Allotment, allot, is_complete
from trainmaster.core.view import PodView
from trainmaster.kinds.aitrainingjob import labels, validate
from trainmaster.kinds.aitrainingjob.body import Builder, declared_ports, place_of, shared_ports, slots_of
from trainmaster.kinds.aitrainingjob.status import (
    ENDED,
    PENDING,
    RUNNING,
    TERMINATING,
    WAITING,
    count,
    enter,
    phase_of,
    reason_of,
)
from trainmaster.kinds.base import Kind, changed_status, cleared, named, portless


class AITrainingJobKind(Kind[AITrainingJob]):
    resource = RESOURCE
    slots = labels.SLOTS
    component = "TrainingJobOperator"
    job_type = AITrainingJob
    status_type = AITrainingJobStatus
    initial_phase = PENDING
    ended = ENDED

    def errors(self, job: AITrainingJob) -> list[str]:
        # Once the verdict is stored, the spec decides nothing any more: a bad edit must not stop the clean-up.
        return [] if job.status.ending else validate.errors(job)

    def action_event(self, verb: str, resource: Resource, names: Sequence[str], error: str = "") -> Event:
        noun = resource.kind.lower()
        if error:
            return warning(
                f"Failed{verb.capitalize()}{resource.kind}",
                f"Error {verb[:-1]}ing {noun} {named(names)}: {error}",
            )
        return normal(f"Successful{verb.capitalize()}{resource.kind}", f"{verb.capitalize()}d {noun}: {named(names)}")

    def decide(self, job: AITrainingJob, observed: Observed, now: datetime) -> Plan:
        if job.status.phase in ENDED:
            return Plan(deletes=_clean_up(job, observed))
        if job.status.ending:
            return self._terminate(job, job.status.ending, observed, now)
        result = _result(job, observed)
        if result.phase:
            return self._end(job, result, observed, now)
        return self._go_on(job, observed, now)

    def _go_on(self, job: AITrainingJob, observed: Observed, now: datetime) -> Plan:
        allotted = self._allot(job, observed)
        creates = self._missing(job, observed) if allotted.is_stored else ()
        counters = count(job, observed)
        phase, message = phase_of(job, counters, observed)
        old = job.status
        if not old.phase:
            phase, message = PENDING, WAITING  # every job is seen waiting first, however fast its pods come up
        entered = enter(old, phase, message, now)
        conditions = cleared(entered.conditions, all_created=allotted.is_stored and not creates, now=now)
        new = msgspec.structs.replace(
            entered,
            observed_generation=job.metadata.generation,
            replica_statuses=counters,
            ports=allotted.ports,
            conditions=portless(conditions, allotted.error, now),
        )
        status = changed_status(old, new)
        return Plan(
            deletes=_surplus(job, observed),
            creates=creates,
            status=status,
            status_first=allotted.is_new,  # a pod is told its port, and nobody else must ever be given it
            is_lazy=status is not None
            and new == msgspec.structs.replace(old, replica_statuses=counters, conditions=new.conditions),
            events=_started(job, phase, message),
            requeue_after=allotted.retry_after,
            ports=allotted.drawn,
        )

    def _allot(self, job: AITrainingJob, observed: Observed) -> Allotment:
        """The ports of the slots that share a network."""
        wanted = shared_ports(job, shared_network=self.settings.shared_network)
        stored = job.status.ports
        if is_complete(wanted, stored):
            return Allotment(stored)
        used = {place_of(r, i): pod.host_ports for r, pods in observed.pods.items() for i, pod in pods.items()}
        taken = observed.taken | declared_ports(job)
        return allot(wanted, stored, used=used, taken=taken, uid=job.metadata.uid)

    def _missing(self, job: AITrainingJob, observed: Observed) -> tuple[Create, ...]:
        """Services before pods: a pod that starts finds its peers' names."""
        slots = slots_of(job)
        nameless = [slot for slot in slots if slot.name not in observed.services]
        empty = [slot for slot in slots if slot.index not in observed.role(slot.role.lower())]
        if not nameless and not empty:
            return ()
        builder = Builder(job, self.owner(job), shared_network=self.settings.shared_network)
        services = [
            Create(SERVICE, builder.service(slot), f"{slot.role}-{slot.index} has no address")
            for slot in nameless
            if builder.has_service(slot.role)
        ]
        pods = [Create(POD, builder.pod(slot), f"{slot.role}-{slot.index} has no pod") for slot in empty]
        return (*services, *pods)

    def _end(self, job: AITrainingJob, result: Result, observed: Observed, now: datetime) -> Plan:
        """The verdict is stored before the first pod is deleted for it."""
        if job.spec.clean_pod_policy == "None":
            return self._close(job, result.phase, f"{result.message}; kept pods", observed, now)
        message = f"{result.message}; deleting pods"
        new = msgspec.structs.replace(
            _finishing(job, TERMINATING, message, now),
            replica_statuses=count(job, observed),
            ending=Ending(phase=result.phase, message=result.message),
        )
        return Plan(
            status=changed_status(job.status, new),
            status_first=True,
            events=(_phase_event(TERMINATING, message),),
        )

    def _terminate(self, job: AITrainingJob, ending: Ending, observed: Observed, now: datetime) -> Plan:
        """Deletes are repeated until nothing is left to delete: one that got lost cannot hang the job."""
        if pods_to_clean(observed.all_pods, job.spec.clean_pod_policy):
            return Plan(deletes=_clean_up(job, observed))
        closed = self._close(job, ending.phase, f"{ending.message}; deleted pods", observed, now)
        return msgspec.structs.replace(closed, deletes=_clean_up(job, observed))

    def _close(self, job: AITrainingJob, phase: str, message: str, observed: Observed, now: datetime) -> Plan:
        counters = job.status.replica_statuses if job.status.ending else count(job, observed)
        new = msgspec.structs.replace(
            _finishing(job, phase, message, now),
            replica_statuses=counters,
            ports={},  # pods that are left keep theirs as long as they run
            ending=None,
        )
        return Plan(status=changed_status(job.status, new), events=(_phase_event(phase, message),))


def _finishing(job: AITrainingJob, phase: str, message: str, now: datetime) -> AITrainingJobStatus:
    """The status of a job that creates nothing any more: what could not be created does not matter now."""
    entered = enter(job.status, phase, message, now)
    return msgspec.structs.replace(
        entered,
        observed_generation=job.metadata.generation,
        conditions=cleared(entered.conditions, all_created=True, now=now),
    )


def _result(job: AITrainingJob, observed: Observed) -> Result:
    groups, rank0 = {}, None
    for name, spec in sorted(job.spec.replica_specs.items()):
        if not spec.replicas:
            continue  # a role without pods has no say
        pods = observed.role(name.lower())
        results = [_pod_result(pods.get(i)) for i in range(spec.replicas)]
        rank0 = rank0 or results[0]
        groups[name] = completion.group_result(results, complete=spec.complete_policy, fail=spec.fail_policy)
    return completion.job_result(
        groups,
        rank0=rank0 or completion.RUNNING,
        complete=job.spec.complete_policy,
        fail=job.spec.fail_policy,
        name=job.metadata.name,
    )


def _pod_result(pod: PodView | None) -> Result:
    if pod is None or pod.deleting or not pod.is_ended:
        return completion.RUNNING  # how a pod ends that was told to go says nothing about the training
    if pod.phase == "Succeeded":
        return Result(completion.SUCCEED)
    exits = [
        f"container {c.name} on node {pod.node} exited with reason {c.reason} exitcode {c.exit_code}"
        for c in pod.containers
        if c.exit_code and c.name.startswith(labels.PREFIX)
    ]
    why = "; ".join(exits) or ", ".join(part for part in (pod.reason, pod.message) if part)
    return Result(completion.FAILED, f"pod {pod.key.name} failed: {why or 'no reason was reported'}")


def _surplus(job: AITrainingJob, observed: Observed) -> tuple[Delete, ...]:
    """Pods and services that fill no slot of the spec, highest index first."""
    slots = {slot.name: observed.role(slot.role.lower()).get(slot.index) for slot in slots_of(job)}
    # A pod whose labels were edited into another slot goes too: it holds a name that its own slot needs.
    pods = [pod for pod in reversed(observed.all_pods) if slots.get(pod.key.name) is not pod]
    services = [s for name, s in sorted(observed.services.items(), reverse=True) if name not in slots]
    why = "it is not in the spec any more"
    return (*deletions(POD, pods, why), *deletions(SERVICE, services, why))


def _clean_up(job: AITrainingJob, observed: Observed) -> tuple[Delete, ...]:
    policy = job.spec.clean_pod_policy
    services = observed.services.values() if policy != "None" else ()
    why = f"the job has ended and cleanPodPolicy is {policy}"
    return (
        *deletions(POD, pods_to_clean(observed.all_pods, policy), why),
        *deletions(SERVICE, services, why),
    )


def _started(job: AITrainingJob, phase: str, message: str) -> tuple[Event, ...]:
    if not job.status.phase and (ignored := validate.unsupported(job)):
        return (warning("NotSupported", f"not acted on yet: {', '.join(ignored)}"),)
    if phase == RUNNING != job.status.phase:
        return (_phase_event(phase, message),)
    return ()


def _phase_event(phase: str, message: str) -> Event:
    make = normal if phase in (RUNNING, TERMINATING, completion.SUCCEED) else warning
    return make(reason_of(phase), message)
