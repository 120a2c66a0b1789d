"""Reasons of conditions and Events of DIJobs with tasks, as the clients of DI-orchestrator v1.1 know them."""

PREFIX = "Job"
"""Of the reasons of phases: JobPending, JobStarting, and so on."""
