"""Reasons of conditions and Events that only MXJobs have, as the clients of the training-operator know them."""

PREFIX = "MXJob"
"""Of the reasons of phases: MXJobCreated, MXJobRunning, and so on."""
TEMPLATE_RESTART_POLICY = "SettedPodTemplateRestartPolicy"
TEMPLATE_SCHEDULER_NAME = "SettedPodTemplateSchedulerName"
