"""What is said of a CustomResourceDefinition that does not fit this version."""

from collections.abc import Sequence

UPDATE_COMMAND = "trainmaster crds | kubectl apply --server-side --force-conflicts -f -"
SHOWN = 5
"""Names of fields in one sentence."""


def outdated(definition: object, fields: Sequence[str]) -> str:
    """The sentence for a definition without these fields."""
    rest = f" and {len(fields) - SHOWN} more" if len(fields) > SHOWN else ""
    lacks = f"{', '.join(fields[:SHOWN])}{rest}"
    return f"the definition of {definition} is older than trainmaster and lacks {lacks}; update it: {UPDATE_COMMAND}"


def deleted(definitions: Sequence[str]) -> str:
    """The sentence for definitions that were deleted while the program ran."""
    return (
        f"the definition of {', '.join(definitions)} was deleted, and with it all of its jobs in all namespaces; "
        f"install it again: {UPDATE_COMMAND}; or restart trainmaster to go on without it"
    )
