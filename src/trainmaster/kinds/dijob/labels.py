"""Words on the wire, spelt as the users of DIJob know them."""

from trainmaster.core.observed import SlotLabels

GROUP_NAME = "group-name"
JOB_NAME = "dijob-name"
CONTROLLER_NAME = "controller-name"
REPLICA_TYPE = "replica-type"
POD_NAME = "pod-name"
DDP_TYPE = "ddp-learner-type"

CONTROLLER = "di-operator"
COORDINATOR = "coordinator"
DDP_MASTER = "ddp-learner-master"
DDP_WORKER = "ddp-learner-worker"

SLOTS = SlotLabels(role=REPLICA_TYPE)

CONTAINER = "di-container"
PORT = "di-port"
MASTER_PORT_NAME = "master-port"
MASTER_PORT = 10314
GPU = "nvidia.com/gpu"
