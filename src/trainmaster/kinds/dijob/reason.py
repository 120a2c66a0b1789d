"""Reasons of conditions and Events that only DIJobs and NerveXJobs have."""

REPLICA_LOST = "ReplicaLost"
"""The node of a declared replica is lost, or ended it. Another replica takes its place."""
REPLICA_FAILED = "ReplicaFailed"
REPLICA_RESTARTED = "ReplicaRestarted"
"""The container of a declared replica was restarted in place."""
NO_TEMPLATE = "NoTemplate"
"""Replicas are declared whose template was removed from the spec."""
NO_AGGREGATOR_CONFIG = "NoAggregatorConfig"


def displaced(role: str) -> str:
    """CoordinatorDisplaced, AggregatorDisplaced: another pod takes the place of a fixed pod."""
    return f"{role.capitalize()}Displaced"
