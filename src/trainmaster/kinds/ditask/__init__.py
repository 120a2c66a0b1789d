"""DIJob of v2alpha1: tasks whose replicas find each other by rank."""
