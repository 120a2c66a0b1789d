"""Kinds of job: one folder each. ``base`` says what a kind is, ``registry`` which there are."""
