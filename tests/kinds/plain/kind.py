"""A made-up kind: N replicas that must all succeed. It shows how little a kind has to describe."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from trainmaster.core import template
from trainmaster.core.ids import Key, Resource
from trainmaster.core.name import child_name_error
from trainmaster.core.observed import Observed, SlotLabels
from trainmaster.core.plan import Body, Event
from trainmaster.core.slot import Slot, numbered, slot_of
from trainmaster.core.wire import ObjectMeta, Template, Wire
from trainmaster.kinds import kubeflow_status, run_policy
from trainmaster.kinds.definition import AGE, MANAGED_BY, PHASE, SERVICE_NAME, SUMMARY, Definition
from trainmaster.kinds.kubeflow_status import JobStatus, Writer
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.kinds.run_policy import RunPolicy
from trainmaster.kinds.status import recalled
from trainmaster.lifecycle import environment, gang
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import GOES_ON, Result
from trainmaster.lifecycle.decide import Cause, Report, Verdict
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.model import JobModel, Role
from trainmaster.lifecycle.restart import Rules
from trainmaster.lifecycle.training import Training

RESOURCE = Resource("plain.example", "v1", "plainjobs", "PlainJob")
SLOTS, ATTEMPT = SlotLabels("replica-type", "replica-index"), "restart-count"
ROLE, MAIN = "worker", "main"


class PlainJobSpec(Wire, frozen=True):
    template: Template
    replicas: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    restart_policy: Literal["Never", "OnFailure", "OnNodeFail"] = "Never"
    run_policy: RunPolicy = RunPolicy()


class PlainJob(Wire, frozen=True):
    """Replicas of one template, which must all succeed."""

    metadata: ObjectMeta
    spec: PlainJobSpec
    status: JobStatus = JobStatus()


DEFINITION = Definition(
    resource=RESOURCE,
    job=PlainJob,
    columns=(PHASE, AGE, *SUMMARY),
    rules={PlainJob: (SERVICE_NAME,), RunPolicy: (MANAGED_BY,)},
)


class PlainJobKind(LifecycleKind[PlainJob]):
    resource = RESOURCE
    slots = SLOTS
    component = "plain-operator"
    job_type = PlainJob
    status_type = JobStatus
    initial_phase = kubeflow_status.CREATED
    phases = kubeflow_status.PHASES
    ended = kubeflow_status.ENDED
    counters = ("replica_statuses", "ran", "conditions")
    writer = Writer("PlainJob")

    def errors(self, job: PlainJob) -> list[str]:
        longest = slot_of(job.metadata.name, ROLE, job.spec.replicas - 1).name
        error = child_name_error(job.metadata.name, longest)
        return template.errors(job.spec.template, "spec.template") + ([f"metadata.name: {error}"] if error else [])

    def read(self, job: PlainJob, observed: Observed) -> JobModel:
        stored, spec, name = job.status, job.spec, job.metadata.name
        has_ended, scheduler = stored.phase in self.ended, self.settings.gang_scheduler
        rules = Rules(spec.restart_policy, "All", limit=None, backoff=10, reset=None)
        return JobModel(
            name=name,
            roles={ROLE: Role(ROLE, spec.replicas, rules, training=Training.of(MAIN, spec.template))},
            known_roles=(ROLE,),
            slots=numbered(name, {ROLE: spec.replicas}),
            run=run_policy.read(spec.run_policy, stored, f"PlainJob {name}"),
            memory=recalled(stored),
            attempt_label=ATTEMPT,
            has_ended=has_ended,
            is_new=not stored.phase,
            is_suspended=kubeflow_status.is_suspended(stored),
            running_since=kubeflow_status.entered_at(stored, kubeflow_status.RUNNING),
            gang_scheduler=scheduler,
            gang=None if has_ended else _gang(job, scheduler),
            starts_anew=True,
            restarts_after_node_loss=True,
            replaces_pending_pods=True,
        )

    def result(self, job: PlainJob, model: JobModel, facts: Facts, verdict: Verdict) -> Result:
        if verdict.final:
            return Result(kubeflow_status.FAILED, self.writer.failed(model.name, verdict))
        is_done = len(facts.succeeded.get(ROLE, ())) == job.spec.replicas
        return Result(kubeflow_status.SUCCEEDED, self.writer.succeeded(model.name)) if is_done else GOES_ON

    def status(self, job: PlainJob, report: Report, now: datetime) -> JobStatus:
        counters = kubeflow_status.count(report)
        runs = job.status.phase == kubeflow_status.RUNNING or kubeflow_status.are_all_running(report, counters)
        return self.writer.status(job, report, counters, now, runs=runs)

    def events(self, job: PlainJob, report: Report, new: JobStatus) -> tuple[Event, ...]:
        return self.writer.events(job.status, new, report)

    def clean_up(self, job: PlainJob, cause: Cause, result: Result) -> CleanPodPolicy | None:
        return run_policy.clean_after(job.spec.run_policy, cause)

    def builder(self, job: PlainJob, model: JobModel, facts: Facts) -> "Builder":
        return Builder(job, self.owner(job).reference(blocks=True), model)


def _gang(job: PlainJob, scheduler: str) -> gang.Gang | None:
    key, policy = Key(job.metadata.namespace, job.metadata.name), job.spec.run_policy.scheduling_policy
    return gang.gang_of(key, scheduler, {ROLE: (job.spec.template["spec"], job.spec.replicas)}, policy)


class Builder:
    environment = environment.NONE

    def __init__(self, job: PlainJob, owner: Body, model: JobModel) -> None:
        self._job, self._owner, self._model = job, owner, model

    def pod(self, slot: Slot) -> Body:
        given, restarts = self._job.spec.template["spec"], self._job.status.restarts.get(slot.role)
        env = template.env_of({"REPLICA": str(slot.index), "REPLICAS": str(self._job.spec.replicas)})
        containers = [template.with_env(container, env) for container in given["containers"]]
        spec = {**given, "containers": containers, "restartPolicy": "Never"}
        labels = {**self._labels(slot), ATTEMPT: str(restarts.count if restarts else 0)}
        body = template.pod_body(self._job.spec.template, spec=spec, labels=labels, **self._named(slot))
        return gang.member(body, self._model.gang, slot.role) if self._model.gang else body

    def service(self, slot: Slot) -> Body:
        labels = self._labels(slot)
        return template.headless_service_body(labels=labels, selector=labels, ports=(), **self._named(slot))

    def _named(self, slot: Slot) -> dict[str, Any]:
        return {"name": slot.name, "namespace": self._job.metadata.namespace, "owner": self._owner}

    def _labels(self, slot: Slot) -> dict[str, str]:
        return {"job-name": self._job.metadata.name, SLOTS.role: slot.role, SLOTS.index: str(slot.index)}
