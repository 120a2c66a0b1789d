"""Words on the wire: those of the training-operator, and beside them what its ancestors called the same."""

from trainmaster.core.observed import SlotLabels

GROUP = "kubeflow.org"
CONTROLLER = "mxjob-controller"

PREFIX = "training.kubeflow.org/"
OPERATOR_NAME = f"{PREFIX}operator-name"
JOB_NAME = f"{PREFIX}job-name"
REPLICA_TYPE = f"{PREFIX}replica-type"
REPLICA_INDEX = f"{PREFIX}replica-index"
JOB_ROLE = f"{PREFIX}job-role"
MASTER = "master"
RESTART_COUNT = f"{PREFIX}restart-count"
"""Ours: the attempt that a pod was created for."""

OLD_GROUP_NAMES = ("group-name", "group_name")
OLD_JOB_NAMES = ("job-name", "mxnet-job-name", "mxnet_job_name")
OLD_REPLICA_TYPES = ("replica-type", "mxnet-replica-type")
OLD_REPLICA_INDICES = ("replica-index", "mxnet-replica-index")
OLD_JOB_ROLE = "job-role"

LABELS = {
    OPERATOR_NAME: f"``{CONTROLLER}``; also on services.",
    JOB_NAME: "The name of the job; also on services.",
    REPLICA_TYPE: "The role, in lower case; also on services.",
    REPLICA_INDEX: "The index of the replica in its role; also on services.",
    JOB_ROLE: f"``{MASTER}`` on server 0; without servers on pod 0 of the role that decides.",
    RESTART_COUNT: "The restarts of the role when the pod was created.",
    **dict.fromkeys(OLD_GROUP_NAMES, f"``{GROUP}``, as the mxnet-operator had it; also on services."),
    **dict.fromkeys(OLD_JOB_NAMES, "The name of the job, as the mxnet-operator had it; also on services."),
    **dict.fromkeys(OLD_REPLICA_TYPES, "The role, as the mxnet-operator had it; also on services."),
    **dict.fromkeys(OLD_REPLICA_INDICES, "The index, as the mxnet-operator had it; also on services."),
    OLD_JOB_ROLE: f"As ``{JOB_ROLE}``.",
}

SLOTS = SlotLabels(
    role=REPLICA_TYPE,
    index=REPLICA_INDEX,
    older=tuple(map(SlotLabels, OLD_REPLICA_TYPES, OLD_REPLICA_INDICES)),
)

CONTAINER = "mxnet"
"""The container that trains: its ports are published, and its exit code is looked at."""
PORT_NAME = "mxjob-port"
DEFAULT_PORT = 9091
TUNER_KEY = "tuner-server-key"
"""The annotation of a template by which TVM's tracker knows a kind of server."""
ANNOTATIONS = {TUNER_KEY: "Of the template of a role: the key of its TVM servers."}
