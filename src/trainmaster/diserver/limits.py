"""Checks a request of replicas: templates exist, GPUs are split over pods, numbers are within the limits."""

from collections.abc import Mapping

import msgspec

from trainmaster.core import template
from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import Key
from trainmaster.core.name import child_name_error
from trainmaster.diserver.cache import Cache, KnownJob
from trainmaster.diserver.gpu import Nodes
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.kinds.dijob import address, declare
from trainmaster.kinds.dijob.aggregatorconfig import RESOURCE as AGGREGATOR_CONFIG
from trainmaster.kinds.dijob.config import aggregator_template
from trainmaster.kinds.dijob.declaration import Aggregator, Role
from trainmaster.kinds.dijob.declare import LEARNER, Asked, Change
from trainmaster.kinds.dijob.status import ENDED
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.settings import SERVER


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of replicas, and the AggregatorConfig that has the aggregator's template."""

    max_per_job: int = SERVER.max_replicas_per_job
    max_per_namespace: int = SERVER.max_replicas_per_namespace
    aggregator_config: Key = SERVER.aggregator_config
    shared_network: bool = False


class RequestLimits:
    def __init__(self, cache: Cache, nodes: Nodes, rules: Rules) -> None:
        self._cache = cache
        self._nodes = nodes
        self.rules = rules

    async def prepared(
        self, known: KnownJob, asked: Mapping[Role, Asked]
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

    async def _aggregator(self, known: KnownJob) -> Aggregator:
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

    def check_limits(self, known: KnownJob, change: Change) -> None:
        before, after = len(known.job.status.declared.members), len(change.declared.members)
        key = known.view.key
        if after > before and after > self.rules.max_per_job:
            raise Refused(409, f"{known.id} would have {after} replicas: a job may have {self.rules.max_per_job}")
        others = sum(
            len(other.job.status.declared.members)
            for other in self._cache.jobs(key.namespace)
            if other.view.uid != known.view.uid and other.job.status.phase not in ENDED
        )
        if after > before and others + after > self.rules.max_per_namespace:
            raise RetryLater(
                f"namespace {key.namespace} would have {others + after} replicas, and may have "
                f"{self.rules.max_per_namespace}: try again when other jobs have ended"
            )


def _check_template(known: KnownJob, role: Role) -> None:
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
