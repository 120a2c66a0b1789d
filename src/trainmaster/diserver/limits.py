"""Checks a request of replicas: templates exist, GPUs are split over pods, numbers are within the limits."""

from collections.abc import Mapping

import msgspec

from trainmaster.core import template
from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import Key
from trainmaster.core.name import child_name_error
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.gpu import Nodes
from trainmaster.diserver.job import CoordinatorJob, KnownJob, TaskJob
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.kinds.dijob import address, declare
from trainmaster.kinds.dijob.aggregatorconfig import RESOURCE as AGGREGATOR_CONFIG
from trainmaster.kinds.dijob.config import aggregator_template
from trainmaster.kinds.dijob.declaration import Aggregator, Role
from trainmaster.kinds.dijob.declare import LEARNER, Asked, Change
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.kinds.ditask import validate
from trainmaster.kinds.ditask.role import replicas_of
from trainmaster.kinds.ditask.types import DITaskJob
from trainmaster.settings import OPERATOR, SERVER


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of replicas, and the AggregatorConfig that has the aggregator's template."""

    max_per_job: int = SERVER.max_replicas_per_job
    max_per_namespace: int = SERVER.max_replicas_per_namespace
    aggregator_config: Key = SERVER.aggregator_config
    shared_network: bool = False
    service_domain: str = OPERATOR.jobs.service_domain
    """What follows the namespace in the DNS names of pods: the addresses of all pods must fit into a variable."""


class RequestLimits:
    def __init__(self, cache: Cache, nodes: Nodes, rules: Rules) -> None:
        self._cache = cache
        self._nodes = nodes
        self.rules = rules

    async def prepared(
        self, known: CoordinatorJob, asked: Mapping[Role, Asked]
    ) -> tuple[dict[Role, Asked], Aggregator | None]:
        """Checks that the templates exist, and splits the GPUs of a learner over pods. Returns also what the
        AggregatorConfig says, if aggregators are needed."""
        ready = dict(asked)
        for role, demand in asked.items():
            if demand.replicas:
                _check_template(known, role)
        learners = asked.get(LEARNER)
        is_single = learners is None or not learners.replicas or learners.gpus <= 1
        if learners is None or is_single or known.profile.has_own_aggregator:
            return ready, None
        aggregator = await self._aggregator(known)
        shares = declare.split(learners.gpus, await self._nodes.usual_gpus())
        ready[LEARNER] = msgspec.structs.replace(learners, shares=shares)
        _check_name(known.job, declare.DDP_LEARNER)
        return ready, aggregator

    async def _aggregator(self, known: CoordinatorJob) -> Aggregator:
        key = self.rules.aggregator_config
        body = await self._cache.find(AGGREGATOR_CONFIG, key)
        if body is None:
            raise Refused(404, f"AGConfig: {key} not exists in cache: a learner of several GPUs needs it; create it")
        try:
            return address.described(known.profile, aggregator_template(body))
        except BadSpec as bad:
            raise Refused(409, f"AGConfig: {key} cannot be used: {'; '.join(bad.errors)}") from bad

    def check_number(self, asked: Mapping[Role, Asked]) -> None:
        """Checked before any names are generated."""
        new = sum(demand.replicas * (1 + len(demand.shares)) for demand in asked.values())
        if new > self.rules.max_per_job:
            raise Refused(400, f"{new} replicas are asked for: a job may have {self.rules.max_per_job}")

    def check_limits(self, known: CoordinatorJob, change: Change) -> None:
        after = len(change.declared.members)
        if after > max(known.replicas, self.rules.max_per_job):
            raise Refused(409, f"{known.id} would have {after} replicas: a job may have {self.rules.max_per_job}")
        self._check_room(known, after)

    def check_tasks(self, known: TaskJob, after: DITaskJob) -> None:
        """The job after the change must be one that the operator runs."""
        total = replicas_of(after)
        if total > max(known.replicas, self.rules.max_per_job):
            raise Refused(400, f"{known.id} would have {total} replicas: a job may have {self.rules.max_per_job}")
        if errors := validate.errors(after, self.rules.service_domain):
            raise Refused(400, f"{known.id} could not be run: {'; '.join(errors)}")
        self._check_room(known, total)

    def _check_room(self, known: KnownJob, after: int) -> None:
        """In the namespace, where all jobs that have not ended count."""
        key = known.view.key
        others = sum(
            other.replicas
            for other in self._cache.jobs(key.namespace)
            if other.view.uid != known.view.uid and not other.has_ended
        )
        if after > known.replicas and others + after > self.rules.max_per_namespace:
            raise RetryLater(
                f"namespace {key.namespace} would have {others + after} replicas, and may have "
                f"{self.rules.max_per_namespace}: try again when other jobs have ended"
            )


def check_open(known: KnownJob) -> None:
    if known.has_ended:
        raise Refused(409, f"{known.id} has ended ({known.phase}): its replicas cannot be changed any more")
    if known.view.deleting:
        raise Refused(409, f"{known.id} is being deleted: its replicas cannot be changed any more")


def _check_template(known: CoordinatorJob, role: Role) -> None:
    job, name = known.job, f"{known.profile.word} {known.view.key.name}"
    pod_template = address.spec_template(job, role)
    if pod_template is None:
        raise Refused(400, f"{name} has no template for {role}s: add spec.{role} to it")
    if errors := template.errors(pod_template, f"spec.{role}.template"):
        raise Refused(409, f"{name} cannot be run as written: {'; '.join(errors)}")
    _check_name(job, role)


def _check_name(job: DIJob, role: Role) -> None:
    if error := child_name_error(job.metadata.name, f"{job.metadata.name}-{role}-{'x' * declare.SUFFIX_LENGTH}"):
        raise Refused(400, f"metadata.name: {error}")
