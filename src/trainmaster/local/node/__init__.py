"""A node whose pods are processes. It talks only the Kubernetes API, so it serves a real API server, too."""
