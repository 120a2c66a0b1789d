"""Reasons of conditions and Events that only DIJobs and NerveXJobs have."""

REPLICA_LOST = "ReplicaLost"
"""The node of a requested replica is lost, or ended it. Another replica takes its place."""
REPLICA_FAILED = "ReplicaFailed"
"""A requested replica failed. Another replica takes its place."""
REPLICA_RESTARTED = "ReplicaRestarted"
"""The kubelet restarted the container of a requested replica."""
NO_TEMPLATE = "NoTemplate"
"""Replicas were requested whose template was removed from the spec."""
NO_AGGREGATOR_CONFIG = "NoAggregatorConfig"
"""The job needs an AggregatorConfig, and there is none, or it cannot be used."""
COORDINATOR_DISPLACED = "CoordinatorDisplaced"
"""The coordinator was lost with its node, or evicted. Another pod takes its place."""
AGGREGATOR_DISPLACED = "AggregatorDisplaced"
"""The aggregator of a NerveXJob failed or was lost. Another pod takes its place."""


def displaced(role: str) -> str:
    """Another pod takes the place of a fixed pod."""
    return AGGREGATOR_DISPLACED if role == "aggregator" else COORDINATOR_DISPLACED
