"""The Kubernetes API on one machine: a versioned store in SQLite behind loopback HTTPS."""
