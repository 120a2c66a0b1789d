"""Reasons of conditions and Events that only MXJobs have, as the clients of the training-operator know them."""

PREFIX = "MXJob"
"""Of the reasons of phases: MXJobCreated, MXJobRunning, and so on."""
TEMPLATE_RESTART_POLICY = "SettedPodTemplateRestartPolicy"
"""A template sets ``restartPolicy``, which has no effect."""
TEMPLATE_SCHEDULER_NAME = "SettedPodTemplateSchedulerName"
"""A template names another scheduler than the gang scheduler."""
