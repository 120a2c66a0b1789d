"""What a cluster is given: manifests, and the program that generates those that can be generated."""
