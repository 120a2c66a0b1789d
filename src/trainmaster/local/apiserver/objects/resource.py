"""What the API serves: one ``Served`` for each resource, built in or from a CustomResourceDefinition."""

from typing import Any

import msgspec

from trainmaster.core.ids import Resource


class Served(msgspec.Struct, frozen=True):
    """One resource in one version. ``definition`` is the version's entry of its CRD (schema, printer columns,
    subresources), or None for a built-in resource."""

    resource: Resource
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    definition: dict[str, Any] | None = None

    @property
    def list_kind(self) -> str:
        return f"{self.resource.kind}List"
