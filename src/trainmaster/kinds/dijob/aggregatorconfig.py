"""AggregatorConfig, diengine.opendilab.org/v1alpha1: the template of the aggregators that di-server asks for.

That of nervex.sensetime.com has the same fields.
"""

from trainmaster.core.ids import Resource
from trainmaster.core.wire import ObjectMeta, Wire
from trainmaster.kinds.dijob.types import RoleSpec

RESOURCE = Resource("diengine.opendilab.org", "v1alpha1", "aggregatorconfigs", "AggregatorConfig")


class AggregatorConfigSpec(Wire, frozen=True):
    aggregator: RoleSpec


class AggregatorConfig(Wire, frozen=True):
    """How an aggregator runs: it gathers learners, and is one learner to the coordinator."""

    metadata: ObjectMeta
    spec: AggregatorConfigSpec
