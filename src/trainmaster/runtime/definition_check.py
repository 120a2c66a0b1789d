"""Compares the CustomResourceDefinitions of the API server with those of this version.

The API server does not store fields that a definition lacks. A program with such definitions is not ready, so that an
upgrade stops before it replaces the older program. Definitions with more fields are fine.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from trainmaster.core.definition import deleted, outdated
from trainmaster.core.errors import Forbidden, NotFound, Trainmaster
from trainmaster.core.ids import Key, Resource
from trainmaster.runtime.cluster import Cluster

DEFINITION = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
CHECK_SECONDS = 60.0
OUTDATED_SECONDS = 5.0
"""Between two checks while a field is missing, or the API server does not answer. It needs a moment, too, to use a
definition that was updated."""

log = structlog.get_logger(__name__)

Object = Mapping[str, Any]


class DefinitionCheck:
    """``definitions`` are those of this version; ``on_update`` is called after the missing fields were added."""

    def __init__(
        self, cluster: Cluster, definitions: Sequence[Object], on_update: Callable[[], None] = lambda: None
    ) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._on_update = on_update
        self._is_forbidden = False
        self._seen: set[str] = set()
        self.problem = "the definitions are not checked yet"
        """Why the program is not ready; empty if it is."""
        self.gone = ""
        """Which definitions were deleted since the program started; empty if none was. A kind that was never installed
        is not one of them: a program for all kinds runs where there are some."""

    async def run(self) -> None:
        was_outdated = False
        while True:
            gone: list[str] = []
            try:
                found = [await self._check(body, gone) for body in self._definitions]
            except Trainmaster as error:
                log.debug("definitions not checked, trying again", because=str(error))
                await asyncio.sleep(OUTDATED_SECONDS)
                continue
            problem = "; ".join(filter(None, found))
            if problem and problem != self.problem:
                log.warning("not ready: the API server would lose fields", because=problem)
            self.problem = problem
            self._tell(gone)
            if was_outdated and not problem:
                log.info("the definitions have all fields now")
                await asyncio.sleep(OUTDATED_SECONDS)
                self._on_update()
            was_outdated = bool(problem)
            await asyncio.sleep(OUTDATED_SECONDS if problem or gone else CHECK_SECONDS)

    def _tell(self, gone: Sequence[str]) -> None:
        sentence = deleted(gone) if gone else ""
        if sentence and sentence != self.gone:
            log.error("a definition was deleted", because=sentence)
        self.gone = sentence

    async def _check(self, wanted: Object, gone: list[str]) -> str:
        """What is wrong with one definition. One that is no longer there is added to ``gone``."""
        name = wanted["metadata"]["name"]
        try:
            found = msgspec.json.decode(await self._cluster.get(DEFINITION, Key("", name)))
        except NotFound:
            if name in self._seen:
                gone.append(name)
            return ""
        except Forbidden as error:
            if not self._is_forbidden:
                self._is_forbidden = True
                log.warning(
                    "definitions may not be read: fields that they lack are reported when a status cannot be stored",
                    because=str(error),
                    hint="grant get on customresourcedefinitions, as deploy/rbac.yaml does",
                )
            return ""
        self._seen.add(name)
        lacking = list(dict.fromkeys(missing_fields(wanted, found)))
        return outdated(name, lacking) if lacking else ""


def missing_fields(wanted: Object, found: Object) -> Iterator[str]:
    """Paths of what a definition lacks, in all versions."""
    served = {version["name"]: version for version in found["spec"]["versions"] if version["served"]}
    for version in wanted["spec"]["versions"]:
        if (other := served.get(version["name"])) is None:
            yield f"version {version['name']}"
            continue
        if "status" not in other.get("subresources", {}):
            yield "the status subresource"
        ours, theirs = (each["schema"]["openAPIV3Schema"] for each in (version, other))
        for part in ("spec", "status"):
            if part in ours["properties"]:
                yield from _missing(ours["properties"][part], theirs.get("properties", {}).get(part, {}), part)


def _missing(ours: Object, theirs: Object, path: str) -> Iterator[str]:
    keeps_unknown = theirs.get("x-kubernetes-preserve-unknown-fields", False)
    inner = theirs.get("properties", {})
    for name, schema in ours.get("properties", {}).items():
        if name in inner:
            yield from _missing(schema, inner[name], f"{path}.{name}")
        elif not keeps_unknown:
            yield f"{path}.{name}"
    for word, place in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(ours.get(word), Mapping) and isinstance(theirs.get(word), Mapping):
            yield from _missing(ours[word], theirs[word], f"{path}{place}")
