"""DIJob, diengine.opendilab.org/v1alpha1."""
