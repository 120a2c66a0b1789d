"""Kubernetes' rules for the names of a job's children, checked before anything is created."""

import re

MAX_LABEL = 63
"""Longest DNS label: a service's name, a pod's host name, a label's value."""

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def child_name_error(job: str, child: str) -> str:
    """Why ``child`` cannot be the name of a pod and its service; empty if it can."""
    if not _DNS_1035.fullmatch(child):
        return (
            f"{job!r} must start with a letter and consist of lower-case letters, digits and '-': "
            f"it becomes part of the service name {child!r}; rename the job"
        )
    if len(child) > MAX_LABEL:
        return (
            f"{job!r} is too long: {child!r} would have {len(child)} characters, {MAX_LABEL} are allowed; "
            f"shorten the job's name by {len(child) - MAX_LABEL}"
        )
    return ""
