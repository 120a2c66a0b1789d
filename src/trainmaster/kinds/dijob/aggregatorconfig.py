"""AggregatorConfig, diengine.opendilab.org/v1alpha1: the template of the aggregators that di-server asks for.

That of nervex.sensetime.com has the same fields.
"""

from trainmaster.core.ids import Resource
from trainmaster.core.wire import Number, ObjectMeta, Wire
from trainmaster.kinds.dijob.types import RoleSpec

RESOURCE = Resource("diengine.opendilab.org", "v1alpha1", "aggregatorconfigs", "AggregatorConfig")


class AggregatorConfigSpec(Wire, frozen=True):
    aggregator: RoleSpec
    """The aggregator: its pods are created from this template."""


class ReplicaCounts(Wire, frozen=True):
    total: Number = 0
    """All replicas."""
    active: Number = 0
    """Replicas that have a task."""
    idle: Number = 0
    """Replicas that have none."""


class AggregatorConfigStatus(Wire, frozen=True):
    """As the examples of nervex-operator have it. Its operator never wrote a status, and ours does not either."""

    actors: ReplicaCounts | None = None
    """Older name of collectors. Never written."""
    collectors: ReplicaCounts | None = None
    """Never written: the status of a job counts its collectors."""
    learners: ReplicaCounts | None = None
    """Never written: the status of a job counts its learners."""


class AggregatorConfig(Wire, frozen=True):
    """The pods of aggregators. An aggregator gathers learners, and is one learner to the coordinator."""

    metadata: ObjectMeta
    """Standard metadata of an object. ``aggregator-config`` in the namespace of the installation is read, and no
    other one."""
    spec: AggregatorConfigSpec
    """How aggregators run. Pods that are created after an edit are as it says, except for the port, which a job
    keeps."""
    status: AggregatorConfigStatus | None = None
    """Accepted, because older examples have it. The operator neither reads nor writes it."""
