"""DIJob and NerveXJob, both v1alpha1: the end of the coordinator is the end of the job."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import POD
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Event
from trainmaster.core.view import JobView, PodView
from trainmaster.core.wire import Template
from trainmaster.kinds.admission_hints import Custom, Main
from trainmaster.kinds.adoption import Candidates, Predecessor
from trainmaster.kinds.base import ActionWords, Related, changed_status, spec_fields
from trainmaster.kinds.dijob import address, adoption, aggregatorconfig, labels, nervexjob, status, validate
from trainmaster.kinds.dijob.body import Builder
from trainmaster.kinds.dijob.config import Templates, aggregator_template
from trainmaster.kinds.dijob.model import model_of, pods_of
from trainmaster.kinds.dijob.profile import AGGREGATOR, COORDINATOR, DI, NERVEX, Profile, type_of
from trainmaster.kinds.dijob.run_policy import clean_after
from trainmaster.kinds.dijob.status import CREATED, ENDED, FAILED, PHASES, SUCCEEDED, AggregatorNews
from trainmaster.kinds.dijob.types import DIJob, DIJobStatus
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import GOES_ON, Result
from trainmaster.lifecycle.decide import Cause, Extra, Report, Verdict
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.model import JobModel


class DIJobKind(LifecycleKind[DIJob]):
    profile: ClassVar[Profile] = DI
    resource = DI.resource
    slots = labels.SLOTS
    component = DI.component
    job_type = type_of(DI)
    status_type = DIJobStatus
    initial_phase = CREATED
    phases = PHASES
    ended = ENDED
    shape = frozenset({"coordinator"})
    blocks_owner_deletion = False
    counters = ("replica_status", "replicas", "ready_replicas")
    predecessor = Predecessor(labels=f"{labels.GROUP_NAME}={DI.resource.group}", reads_pods=True)
    action_words = ActionWords(
        success_reason="Successful{Verb}",
        success="{Verb} {noun}: {names}",
        failure_reason="Failed{Verb}",
        failure="Failed to {verb} {noun}: {names} error: {error}",
    )
    custom = Custom(
        defaults={"cleanPodPolicy": "Running"},
        main=Main("di-container", "it gets no port di-port, and all containers of the template have to end"),
        together=("collector", "learner"),
        ending=("coordinator",),
    )

    def decode(self, view: JobView) -> DIJob:
        try:
            return super().decode(view)
        except BadSpec as bad:
            if self.shape and (fields := spec_fields(view.raw)) and self.shape.isdisjoint(fields):
                raise BadSpec(f"spec: {validate.SHAPE}") from bad
            raise

    def errors(self, job: DIJob) -> list[str]:
        return validate.errors(job)

    def read(self, job: DIJob, observed: Observed) -> JobModel:
        return model_of(job, self.settings, self._templates(job, observed))

    def replica_pods(self, job: DIJob, model: JobModel, observed: Observed) -> Mapping[str, PodView]:
        return pods_of(job, model.slots, observed)

    def result(self, job: DIJob, model: JobModel, facts: Facts, verdict: Verdict) -> Result:
        """Every job is seen Created first, however fast its coordinator ends."""
        if model.is_new:
            return GOES_ON
        title = f"{self.profile.word} {model.name}"
        if 0 in facts.succeeded.get(COORDINATOR, ()):
            return Result(SUCCEEDED, f"{title} succeeded because coordinator succeeded")
        failed = next((f for f in verdict.final if f.role == COORDINATOR), None)
        if failed is None:
            return GOES_ON
        return Result(FAILED, f"{title} failed because coordinator failed: {failed.fault.message}")

    def builder(self, job: DIJob, model: JobModel, facts: Facts) -> Builder:
        return Builder(job, self.owner(job), self.settings, model.gang, facts, self._templates(job, facts.observed))

    def status(self, job: DIJob, report: Report, now: datetime) -> DIJobStatus:
        return status.written(job, report, now)

    def events(self, job: DIJob, report: Report, new: DIJobStatus) -> tuple[Event, ...]:
        return status.events(job, report, new)

    def clean_up(self, job: DIJob, cause: Cause, result: Result) -> CleanPodPolicy | None:
        return clean_after(job.spec.clean_pod_policy, cause)

    def other_children(self, job: DIJob, facts: Facts, now: datetime) -> Extra:
        """Where aggregators listen is stored before they are created: whatever becomes of the AggregatorConfig later,
        they restart where the coordinator finds them."""
        known = address.aggregator_of(job)
        if not self._has_aggregators(job) or (known and all(slot.role != AGGREGATOR for slot in facts.missing)):
            return Extra()
        try:
            found = address.described(self.profile, self._aggregator_template(facts.observed))
        except BadSpec as bad:
            return Extra(record=AggregatorNews(error="; ".join(bad.errors)))
        if known:
            found = msgspec.structs.replace(found, port=known.port)
        return Extra(record=AggregatorNews(found), is_new=found != job.status.declared.aggregator)

    def remembered(self, view: JobView, found: Candidates, now: datetime) -> dict[str, Any] | None:
        """Replicas that another di-server created are declared before they are adopted: others are deleted."""
        try:
            job = self.decode(view)
        except BadSpec:
            return None
        if job.status.phase in ENDED or (declared := adoption.adopted(job, found.get(POD, ()))) is None:
            return None
        return changed_status(job.status, msgspec.structs.replace(job.status, declared=declared))

    @property
    def related(self) -> Related:
        return Related(aggregatorconfig.RESOURCE, self.settings.dijob_aggregator_config)

    def _has_aggregators(self, job: DIJob) -> bool:
        members = job.status.declared.members.values()
        return self.profile.has_own_aggregator or any(member.role == AGGREGATOR for member in members)

    def _templates(self, job: DIJob, observed: Observed) -> Templates:
        try:
            return Templates(job, self._aggregator_template(observed) if self._has_aggregators(job) else None)
        except BadSpec:
            return Templates(job)

    def _aggregator_template(self, observed: Observed) -> Template:
        """Raises ``BadSpec`` when no aggregator can be created."""
        name = f"AggregatorConfig {self.related.key}"
        if observed.related is None:
            raise BadSpec(
                f"{name} is missing: create it there, those of other namespaces are not read; "
                "the job goes on as soon as it exists"
            )
        try:
            return aggregator_template(observed.related)
        except BadSpec as bad:
            raise BadSpec(f"{name} cannot be used: {'; '.join(bad.errors)}") from bad


class NerveXJobKind(DIJobKind):
    profile = NERVEX
    resource = NERVEX.resource
    component = NERVEX.component
    job_type = type_of(NERVEX)
    shape = frozenset()
    predecessor = Predecessor(labels=f"{labels.GROUP_NAME}={NERVEX.resource.group}", reads_pods=True)
    custom = msgspec.structs.replace(
        DIJobKind.custom,
        main=Main("{role}", "it gets no port of that name, and all containers of the template have to end"),
    )

    @property
    def related(self) -> Related:
        return Related(nervexjob.AGGREGATOR_CONFIG, self.settings.aggregator_config)
