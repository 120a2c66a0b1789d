"""One machine as a small Kubernetes: ``apiserver`` speaks its dialect over loopback, ``node`` runs its pods."""
