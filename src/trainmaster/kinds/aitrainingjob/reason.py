"""Reasons of conditions and Events that only AITrainingJobs have."""

PREFIX = "TrainingJob"
"""Of the reasons of phases: TrainingJobPending, TrainingJobRunning, and so on."""
CLASS_NOT_FOUND = "NotFound"
"""There is no PriorityClass with the name of the job's priority."""
