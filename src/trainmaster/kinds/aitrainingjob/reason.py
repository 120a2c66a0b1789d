"""Reasons of conditions and Events that only AITrainingJobs have."""

PREFIX = "TrainingJob"
"""Of the reasons of phases: TrainingJobPending, TrainingJobRunning, and so on."""
