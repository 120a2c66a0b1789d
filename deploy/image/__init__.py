"""Builds the image of the Dockerfile without a docker daemon: `python -m deploy.image`, or `make image`.

Two builds of one commit on one base give one digest: entries of layers are sorted, their times are that of the
commit at most, and nothing that a build leaves behind (logs, caches) is in them.
"""
