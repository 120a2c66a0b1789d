"""MXJob, kubeflow.org/v1."""
