"""The environment that the containers of a pod start with, as a kubelet resolves it."""

from collections.abc import Iterator, Mapping

import msgspec

from tests.build import Json
from tests.matrix.world import World
from trainmaster.core.ids import CONFIG_MAP, POD, Resource


def environment_of(pod: Json, config_maps: Mapping[str, Json] | None = None) -> dict[str, str]:
    """Of its first container. ``config_maps`` are those of its namespace, by name."""
    found: dict[str, str] = {}
    for entry in pod["spec"]["containers"][0]["env"]:
        if "value" in entry:
            found[entry["name"]] = entry["value"]
        else:
            reference = entry["valueFrom"]["configMapKeyRef"]
            found[entry["name"]] = (config_maps or {})[reference["name"]]["data"][reference["key"]]
    return found


def nodes_of(environment: Mapping[str, str]) -> list[str]:
    return environment["DI_NODES"].split(",")


def own_node(environment: Mapping[str, str]) -> str:
    """Where ``ditask`` listens; raises IndexError as its parser does."""
    return nodes_of(environment)[int(environment["DI_RANK"])]


def created(world: World) -> list[tuple[Json, dict[str, str]]]:
    """Every pod that was ever created, in order, and the environment of its first container."""
    maps = {body["metadata"]["name"]: body for body in _added(world, CONFIG_MAP)}
    return [(pod, environment_of(pod, maps)) for pod in _added(world, POD)]


def _added(world: World, resource: Resource) -> Iterator[Json]:
    for change in world.api.streams.get(resource, ()):
        if change.type == "ADDED":
            yield msgspec.json.decode(change.body)
