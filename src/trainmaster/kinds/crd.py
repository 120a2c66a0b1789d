"""CustomResourceDefinitions of all kinds, from ``kinds/<kind>/crd.py`` and the wire types."""

from collections.abc import Container, Iterator
from functools import cache
from typing import Any

import msgspec
import yaml

from trainmaster.core.ids import Resource
from trainmaster.kinds.definition import Definition
from trainmaster.kinds.registry import DEFINITIONS
from trainmaster.kinds.schema import schema_of


def crd(definition: Definition) -> dict[str, Any]:
    """One CustomResourceDefinition, ready for ``kubectl apply``."""
    resource = definition.resource
    kind = resource.kind
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(resource)},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": resource.plural,
                "singular": kind.lower(),
                **({"shortNames": [definition.short_name]} if definition.short_name else {}),
                **({"categories": list(definition.categories)} if definition.categories else {}),
            },
            "scope": "Namespaced",
            "versions": list(_versions(definition)),
        },
    }


def _versions(definition: Definition) -> Iterator[dict[str, Any]]:
    scale = {"scale": msgspec.to_builtins(definition.scale)} if definition.scale else {}
    schema = schema_of(definition.job, definition.rules)
    for version in definition.versions:
        yield {
            "name": version.name,
            "served": True,
            "storage": version.name == definition.resource.version,
            "subresources": {"status": {}, **scale},
            "additionalPrinterColumns": [msgspec.to_builtins(column) for column in version.columns],
            "schema": {"openAPIV3Schema": schema},
        }


def crds_of(resources: Container[Resource]) -> tuple[dict[str, Any], ...]:
    """The definitions of these resources."""
    found = zip(DEFINITIONS, all_crds(), strict=True)
    return tuple(body for definition, body in found if definition.resource in resources)


@cache  # descriptions are read from source files, and local mode needs the definitions twice
def all_crds() -> tuple[dict[str, Any], ...]:
    """The definitions of all kinds, always in the same order. They are shared: do not change them."""
    return tuple(crd(definition) for definition in DEFINITIONS)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True  # anchors are legal, but hard to read in a diff


def to_yaml() -> str:
    """All definitions as one manifest: what ``trainmaster crds`` prints and deploy/crds.yaml holds."""
    documents = yaml.dump_all(all_crds(), Dumper=_Dumper, explicit_start=True, sort_keys=False, width=118)
    return f"# Generated from src/trainmaster/kinds: change it there, then run `make generate`.\n{documents}"
