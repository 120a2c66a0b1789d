"""Puts the layers below together: the parts of an operator, and those of a cluster on one machine."""
