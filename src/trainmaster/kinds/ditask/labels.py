"""Words on the wire, spelt as the users of DI-orchestrator v1.1 know them."""

from trainmaster.core.observed import SlotLabels

OPERATOR_NAME = "di-operator"

PREFIX = "diengine/"
JOB = f"{PREFIX}job"
OPERATOR = f"{PREFIX}operator"
POD = f"{PREFIX}pod"
TASK_TYPE = f"{PREFIX}task-type"
TASK_NAME = f"{PREFIX}task-name"
PRIORITY = f"{PREFIX}priority"
RESTART_COUNT = f"{PREFIX}restart-count"
"""Ours: the attempt that a pod was created for."""

# Annotations of pods. Ours have RANK and TASK_RANK as labels, too: selectors can name these.
REPLICAS = f"{PREFIX}replicas"
"""Replicas of the job when the pod was created."""
RANK = f"{PREFIX}rank"
TASK_RANK = f"{PREFIX}task-rank"
"""The index of the pod in its task."""
NODE = f"{PREFIX}node"
"""Always empty: the scheduler chooses the node."""

LABELS = {
    JOB: "The name of the job; also on the service.",
    OPERATOR: f"``{OPERATOR_NAME}``; also on the service.",
    POD: "The name of the pod.",
    TASK_TYPE: "The type of the task.",
    TASK_NAME: "The name of the task.",
    RANK: "The rank of the pod in the job.",
    TASK_RANK: "The index of the pod in its task.",
    RESTART_COUNT: "The attempt that the pod was created for.",
    PRIORITY: "``spec.priority``, if it is set.",
}
ANNOTATIONS = {
    REPLICAS: "The number of replicas of the job when the pod was created.",
    RANK: "The rank of the pod in the job.",
    TASK_RANK: "The index of the pod in its task.",
    NODE: "Empty: the scheduler chooses the node.",
}

# DI-orchestrator sets no label with the index alone.
SLOTS = SlotLabels(role=TASK_NAME, index=POD, ends_with_index=True)

CONTAINER = "di-container"
"""The container that trains. In a pod without one of this name all containers do."""
PORT_NAME = "di-port"
DEFAULT_PORT = 22270


def service_name(job: str) -> str:
    """The service of a job, by which the names of its pods resolve."""
    return f"di-{job}"


def job_labels(job: str) -> dict[str, str]:
    """The labels by which the service finds the pods of a job."""
    return {JOB: job, OPERATOR: OPERATOR_NAME}
