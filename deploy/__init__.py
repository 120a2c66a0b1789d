"""What a cluster is given: manifests, and the program that generates those that can be generated."""

PART_OF = {"app.kubernetes.io/part-of": "trainmaster"}
"""The label of all objects but the definitions: an installation can be removed without these."""
