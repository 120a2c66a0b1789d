"""Words on the wire, spelt as the users of DIJob know them; ``profile`` has those that NerveXJob spells otherwise."""

from trainmaster.core.observed import SlotLabels

GROUP_NAME = "group-name"
CONTROLLER_NAME = "controller-name"
REPLICA_TYPE = "replica-type"
POD_NAME = "pod-name"
DDP_TYPE = "ddp-learner-type"

DDP_MASTER = "ddp-learner-master"
DDP_WORKER = "ddp-learner-worker"

SLOTS = SlotLabels(role=REPLICA_TYPE)

RESTART_COUNT = "restart-count"
"""The attempt of a coordinator or aggregator that was restarted; the first attempt has no such label."""

MASTER_PORT_NAME = "master-port"
MASTER_PORT = 10314
GPU = "nvidia.com/gpu"
