"""Where each kind is reviewed: the paths that its ancestors' webhook configurations know."""

from typing import Literal

from trainmaster.core.ids import Resource

Phase = Literal["mutate", "validate"]


def path_of(phase: Phase, resource: Resource) -> str:
    """``/validate-diengine-opendilab-org-v1alpha1-dijob``."""
    group = resource.group.replace(".", "-")
    return f"/{phase}-{group}-{resource.version}-{resource.kind.lower()}"
