"""The kinds whose jobs are objects of one resource."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from trainmaster.core.ids import Resource
from trainmaster.kinds.adoption import Predecessor
from trainmaster.kinds.base import Kind, Related, spec_fields


class ResourceKinds:
    """Mostly one kind. Where several share a resource, the fields of the spec decide of which kind a job is, whatever
    version it is read or written in. ``versions`` are those that are served besides the stored one."""

    def __init__(self, *kinds: Kind[Any], versions: Sequence[str] = ()) -> None:
        self.kinds = kinds
        self.resource = kinds[0].resource
        if any(kind.resource != self.resource for kind in kinds):
            raise ValueError(f"kinds that share {self.resource} name it in one version, the stored one")
        self.resources = (
            self.resource,
            *(msgspec.structs.replace(self.resource, version=version) for version in versions),
        )
        """The resource in each served version."""

    def of(self, raw: bytes | msgspec.Raw) -> Kind[Any]:
        """The kind of a job. One that has the fields of no kind is of the first, which says what is wrong with it."""
        first, *others = self.kinds
        if not others:
            return first
        fields = spec_fields(raw)
        return next((kind for kind in others if not kind.shape.isdisjoint(fields)), first)

    @property
    def name(self) -> str:
        """What logs and metrics call its controller."""
        return self.kinds[0].name

    @property
    def framework(self) -> str:
        return self.kinds[0].framework

    @property
    def phases(self) -> frozenset[str]:
        return frozenset().union(*(kind.phases for kind in self.kinds))

    @property
    def spellings(self) -> frozenset[str]:
        """What options may call it. Several kinds may have the same name; with its group it is one of them."""
        singular = self.resource.kind.lower()
        return frozenset({singular, f"{singular}.{self.resource.group}", *(kind.name for kind in self.kinds)})

    @cached_property
    def related(self) -> tuple[Related, ...]:
        return tuple(dict.fromkeys(kind.related for kind in self.kinds if kind.related))

    @cached_property
    def children(self) -> tuple[Resource, ...]:
        """What jobs own besides pods and services."""
        return tuple(dict.fromkeys(resource for kind in self.kinds for resource in kind.children))

    @cached_property
    def predecessors(self) -> tuple[Predecessor, ...]:
        return tuple(dict.fromkeys(kind.predecessor for kind in self.kinds if kind.predecessor))

    @property
    def looks_at_readiness(self) -> bool:
        return any(kind.looks_at_readiness for kind in self.kinds)

    @property
    def looks_at_nodes(self) -> bool:
        return any(kind.looks_at_nodes for kind in self.kinds)


def by_resource(kinds: Sequence[Kind[Any]]) -> tuple[tuple[Kind[Any], ...], ...]:
    """Kinds that share a resource together, in their order."""
    found: dict[Resource, list[Kind[Any]]] = {}
    for kind in kinds:
        found.setdefault(kind.resource, []).append(kind)
    return tuple(map(tuple, found.values()))
