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

LABELS = {
    GROUP_NAME: f"``{GROUP}``; also on services.",
    TRAINING_JOB_NAME: "The name of the job; also on services.",
    REPLICA_NAME: "The role, in lower case; also on services.",
    REPLICA_INDEX: "The index of the replica in its role; also on services.",
    JOB_NAME: "The name of the job.",
    POD_ROLE: "The role, in lower case.",
    RESTART_COUNT: "``status.RestartCount`` of the role when the pod was created.",
    PRIORITY: "``spec.priority``, if it is set.",
}

SLOTS = SlotLabels(role=REPLICA_NAME, index=REPLICA_INDEX)

PREFIX = "aitj-"
"""Marks the containers and ports that take part in the training: their exit codes are looked at, and their ports are
published. If no container of a pod has it, all containers of the template train; a container in which no port has it,
publishes all."""

MAIN = f"{PREFIX}*"
