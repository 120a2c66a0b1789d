"""CustomResourceDefinitions of NerveXJob and the AggregatorConfigs. That of DIJob, which is for v2alpha1, too, is in
``kinds/ditask``."""

from trainmaster.core.name import MAX_LABEL
from trainmaster.kinds.definition import AGE, IS_OLD, MANAGED_BY, NAME, PHASE, SERVICE_NAME, SUMMARY, Definition
from trainmaster.kinds.dijob import aggregatorconfig, nervexjob
from trainmaster.kinds.dijob.types import DIJobSpec
from trainmaster.kinds.schema import Rule


def _child_name(suffix: str) -> Rule:
    """The job's name with the longest ending that a pod of it can have."""
    size = f"size({NAME}) + size({suffix})"
    return Rule(
        rule=f"{IS_OLD} || {size} <= {MAX_LABEL}",
        path=".metadata.name",
        message=f"is too long: the names of pods are made from it and may have {MAX_LABEL} characters",
        detail=(
            f"'is too long: \"%s%s\" would have %d characters, {MAX_LABEL} are allowed; shorten the name by %d'"
            f".format([{NAME}, {suffix}, {size}, {size} - {MAX_LABEL}])"
        ),
    )


# A job with a template for learners may get DDP learners.
DIJOB_NAME = _child_name(
    "(has(self.spec) && has(self.spec.tasks) ? '' : has(self.spec) && has(self.spec.learner) ? '-ddp-learner-xxxxx' : "
    "has(self.spec) && has(self.spec.collector) ? '-collector-xxxxx' : '-coordinator')"
)
_NERVEXJOB_NAME = _child_name(
    "(has(self.spec) && has(self.spec.collector) ? '-collector-xxxxx' : "
    "has(self.spec) && has(self.spec.learner) ? '-learner-xxxxx' : '-coordinator')"
)

NERVEXJOB = Definition(
    resource=nervexjob.RESOURCE,
    job=nervexjob.NerveXJob,
    short_name="nvxjob",
    columns=(PHASE, AGE, *SUMMARY),
    rules={nervexjob.NerveXJob: (SERVICE_NAME, _NERVEXJOB_NAME), DIJobSpec: (MANAGED_BY,)},
)
AGGREGATOR_CONFIG, NERVEX_AGGREGATOR_CONFIG = (
    Definition(
        resource=resource,
        job=aggregatorconfig.AggregatorConfig,
        short_name="agconfig",
        categories=(),
        columns=(AGE,),
    )
    for resource in (aggregatorconfig.RESOURCE, nervexjob.AGGREGATOR_CONFIG)
)
