"""CustomResourceDefinitions of another version than the operator under test."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import yaml

from trainmaster.kinds.crd import all_crds

Object = dict[str, Any]

ADDED = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of a field that a newer version has."""


def manifest(definitions: Iterable[Object]) -> str:
    return yaml.safe_dump_all(definitions)


def current() -> list[Object]:
    return changed(lambda properties: None)


def older(*fields: str) -> list[Object]:
    """Definitions whose status does not have these fields."""

    def remove(properties: Object) -> None:
        for field in fields:
            properties["status"]["properties"].pop(field, None)

    return changed(remove)


def newer(field: str) -> list[Object]:
    """Definitions with one more field in spec, status and each entry of ``status.restarts``."""

    def add(properties: Object) -> None:
        properties["spec"].setdefault("properties", {})[field] = ADDED
        status = properties["status"]["properties"]
        status[field] = ADDED
        if "additionalProperties" in status.get(
            "restarts", ()
        ):  # a DIJob keeps all fields, an AggregatorConfig has none
            status["restarts"]["additionalProperties"]["properties"][field] = ADDED

    return changed(add)


def changed(change: Callable[[Object], None]) -> list[Object]:
    definitions = list(map(deepcopy, all_crds()))
    for definition in definitions:
        definition["metadata"].pop("annotations", None)
        for version in definition["spec"]["versions"]:
            properties = version["schema"]["openAPIV3Schema"]["properties"]
            if "status" in properties:
                change(properties)
    return definitions
