"""Reasons of conditions and Events that all kinds share; those of one kind are in ``kinds/<kind>/reason.py``.

The reasons of phases are made of a prefix of the kind and the phase, such as MXJobRunning. The reasons for children
that were created or deleted are in ``kinds.base.ActionWords``.
"""

INVALID_SPEC = "InvalidSpec"
"""The spec cannot be run. The message says what to change."""
VALID = "Valid"
"""The spec was corrected."""

UNKNOWN_FIELD = "UnknownField"
"""The CustomResourceDefinition lacks a field of the status."""
STORED = "Stored"
"""The status was stored whole again."""

CLASS_NOT_FOUND = "NotFound"
"""There is no PriorityClass with the name of the job's priority."""
FAILED_CREATE = "FailedCreate"
"""The API server refuses a pod or service."""
NO_FREE_PORT = "NoFreePort"
"""A pod that shares a network needs a port, and none is free."""
PORT_QUOTA_EXCEEDED = "PortQuotaExceeded"
"""The job, or its namespace, would have more host ports than the operator allows."""
CREATED = "Created"
"""All pods and services, or the containers of all pods, are created now."""

RETRYING = "Retrying"
"""Containers cannot be created, for example without their image. The kubelet retries."""
NODES_NOT_READY = "NodesNotReady"
"""Most nodes are not ready. Pods on them are not restarted."""
QUEUED = "Queued"
"""Kueue has not admitted pods of the job to their queue."""
UNSCHEDULABLE = "Unschedulable"
"""A pod gets no node. The message is that of the scheduler."""
CONTAINER_CREATING = "ContainerCreating"
"""A pod has been creating its containers for long, for example because a volume cannot be mounted."""
STARTED = "Started"
"""No pod waits any more."""

POD_LOST = "PodLost"
"""A pod was deleted while the job ran."""
POD_REPLACED = "PodReplaced"
"""A pod was pending on a lost node. Another pod takes its place."""
SHRUNK = "Shrunk"
"""An elastic job continues without pods that were lost with their node."""

SUSPENDED = "Suspended"
"""The job was suspended."""
STOPPED = "Stopped"
"""The job is suspended and has no pods."""
RESUMED = "Resumed"
"""The job was resumed."""

LEFT_TO_OPERATOR = "LeftToOperator"
"""The namespace of the job has an operator of its own, to which the operator of the cluster leaves the job."""
TAKEN_BACK = "TakenBack"
"""The operator of the namespace has ended, and the operator of the cluster reconciles the job."""
