"""Words on the wire, spelt as the users of DIJob know them."""

from trainmaster.core.observed import SlotLabels

GROUP_NAME = "group-name"
JOB_NAME = "dijob-name"
CONTROLLER_NAME = "controller-name"
REPLICA_TYPE = "replica-type"
POD_NAME = "pod-name"

CONTROLLER = "di-operator"
COORDINATOR = "coordinator"

SLOTS = SlotLabels(role=REPLICA_TYPE)

CONTAINER = "di-container"
PORT = "di-port"
COORDINATOR_PORT = 22273
