"""Distributed training jobs as Kubernetes custom resources; design and layers are in docs/."""
