"""The rights that installations grant to their programs, and those that no run on this cluster can use."""

from deploy.manager import ALL, MX, VARIANTS, Variant, bodies
from tests.e2e.audit import Right, granted

SINGLE = (*VARIANTS, MX)
INSTALLATIONS = (ALL, *SINGLE)


UNUSABLE = {
    (
        "update",
        "/finalizers",
    ): "clusters with the plug-in OwnerReferencesPermissionEnforcement check it; no request does",
}
"""Verb and end of the resource, and why no request here needs it."""


def is_unusable(right: Right) -> bool:
    """Is there a reason why no request needs it?"""
    return any(right.verb == verb and right.resource.endswith(end) for verb, end in UNUSABLE)


def needed(variant: Variant) -> set[Right]:
    """The rights of an installation that its programs are to use."""
    return {right for right in granted(bodies(variant)) if not is_unusable(right)}
