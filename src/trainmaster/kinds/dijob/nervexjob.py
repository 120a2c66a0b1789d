"""NerveXJob and its AggregatorConfig, nervex.sensetime.com/v1alpha1: what DIJob was called before, spelt the same."""

from trainmaster.core.ids import Resource
from trainmaster.kinds.dijob.types import DIJob

RESOURCE = Resource("nervex.sensetime.com", "v1alpha1", "nervexjobs", "NerveXJob")
AGGREGATOR_CONFIG = Resource("nervex.sensetime.com", "v1alpha1", "aggregatorconfigs", "AggregatorConfig")


class NerveXJob(DIJob, frozen=True):
    """A reinforcement-learning job of nerveX: its coordinator and its aggregator run first, and the coordinator
    requests collectors and learners."""
