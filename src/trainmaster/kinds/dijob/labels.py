"""Words on the wire, spelt as the users of DIJob know them; ``profile`` has those that NerveXJob spells otherwise."""

from trainmaster.core.observed import SlotLabels

GROUP_NAME = "group-name"
CONTROLLER_NAME = "controller-name"
REPLICA_TYPE = "replica-type"
POD_NAME = "pod-name"
DDP_TYPE = "ddp-learner-type"

DDP_MASTER = "ddp-learner-master"
DDP_WORKER = "ddp-learner-worker"

RESTART_COUNT = "restart-count"
"""The attempt of a coordinator or aggregator that was restarted; the first attempt has no such label."""

LABELS = {
    GROUP_NAME: "The group of the kind; also on services.",
    CONTROLLER_NAME: "The operator of the kind; also on services.",
    REPLICA_TYPE: "The role; also on services.",
    POD_NAME: "The name of the pod; also on services.",
    DDP_TYPE: f"``{DDP_MASTER}`` or ``{DDP_WORKER}``, in DDP groups of several pods; also on services.",
    RESTART_COUNT: "The attempt of a pod that was restarted under its name.",
}
"""Of pods, beside the one that names the job."""

SLOTS = SlotLabels(role=REPLICA_TYPE)

MASTER_PORT_NAME = "master-port"
MASTER_PORT = 10314
GPU = "nvidia.com/gpu"
