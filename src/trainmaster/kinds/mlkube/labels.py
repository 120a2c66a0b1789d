"""Words on the wire, spelt as the users of MxJob know them."""

from trainmaster.core.observed import SlotLabels

GROUP = "mxnet.mlkube.io"
"""On everything that belongs to such a job, with no value; also where the job is of the group that came before."""
JOB_NAME = "mx_job"
JOB_TYPE = "job_type"
RUNTIME_ID = "runtime_id"
TASK_INDEX = "task_index"

LABELS = {
    GROUP: "Empty. Also on Jobs and the service.",
    JOB_NAME: "The name of the job; also on Jobs and the service.",
    JOB_TYPE: "``SCHEDULER``, ``SERVER`` or ``WORKER``; also on Jobs and the service.",
    RUNTIME_ID: "The runtime id; also on Jobs and the service.",
    TASK_INDEX: "The index of the replica; also on Jobs and the service.",
}

SLOTS = SlotLabels(role=JOB_TYPE, index=TASK_INDEX)

SCHEDULER = "SCHEDULER"
SERVER = "SERVER"
WORKER = "WORKER"
ROLES = (SCHEDULER, SERVER, WORKER)

CONTAINER = "mxnet"
"""The container that trains: it gets the environment, and its end is the replica's."""
PORT_NAME = "ps-root-port"
