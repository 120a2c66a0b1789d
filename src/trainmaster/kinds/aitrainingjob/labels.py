"""Words on the wire, spelt as the users of AITrainingJob know them."""

from trainmaster.core.observed import SlotLabels

GROUP = "elasticdeeplearning.ai"

GROUP_NAME = "GroupName"
TRAINING_JOB_NAME = "TrainingJobName"
JOB_NAME = "JobName"
POD_ROLE = "PodRole"
RESTART_COUNT = "RestartCount"
REPLICA_NAME = "TrainingJobReplicaName"
REPLICA_INDEX = "TrainingJobReplicaIndex"
PRIORITY = "priority"

SLOTS = SlotLabels(role=REPLICA_NAME, index=REPLICA_INDEX)

PREFIX = "aitj-"
"""Only containers and ports of this prefix take part in the training: they are watched and published."""
