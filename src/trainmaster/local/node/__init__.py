"""A node whose pods are processes. It uses only the Kubernetes API, so it works with a real API server, too."""
