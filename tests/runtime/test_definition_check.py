"""trainmaster.runtime.definition_check"""

import asyncio
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import pytest

from tests.runtime.cluster import Call, FakeCluster
from tests.runtime.kind import Json
from trainmaster.core.definition import UPDATE_COMMAND
from trainmaster.core.errors import Forbidden, ServerError
from trainmaster.core.ids import Key
from trainmaster.kinds.crd import all_crds
from trainmaster.runtime.definition_check import (
    CHECK_SECONDS,
    DEFINITION,
    OUTDATED_SECONDS,
    DefinitionCheck,
    missing_fields,
)

Logs = list[MutableMapping[str, Any]]


def toys(*status: str, version: str = "v1") -> Json:
    """A definition whose status has these fields."""
    properties = {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {field: {"type": "string"} for field in status}},
    }
    return {
        "metadata": {"name": "toys.test.example"},
        "spec": {
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                }
            ]
        },
    }


def without_subresource(definition: Json) -> Json:
    definition["spec"]["versions"][0].pop("subresources")
    return definition


def keeping_unknown(definition: Json) -> Json:
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["status"]["x-kubernetes-preserve-unknown-fields"] = True
    return definition


def unserved(definition: Json) -> Json:
    definition["spec"]["versions"][0]["served"] = False
    return definition


OURS = toys("phase", "restarts")


# --- comparing ---


@pytest.mark.parametrize(
    ("found", "lacks"),
    [
        pytest.param(toys("phase", "restarts"), [], id="the same"),
        pytest.param(toys("phase", "restarts", "future"), [], id="a newer one"),
        pytest.param(toys("phase"), ["status.restarts"], id="an older one"),
        pytest.param(keeping_unknown(toys()), [], id="one that keeps unknown fields"),
        pytest.param(toys("phase", "restarts", version="v2"), ["version v1"], id="one without our version"),
        pytest.param(unserved(toys("phase", "restarts")), ["version v1"], id="one that does not serve our version"),
        pytest.param(
            without_subresource(toys("phase", "restarts")), ["the status subresource"], id="one without a status"
        ),
    ],
)
def test_only_what_a_definition_lacks_is_missing(found: Json, lacks: list[str]) -> None:
    assert list(missing_fields(OURS, found)) == lacks


def objects_in(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    """All schemas with properties, in which the API server drops unknown fields."""
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from objects_in(inner, f"{path}.{name}")
    for word, place in (("items", "[]"), ("additionalProperties", ".*")):
        if word in schema:
            yield from objects_in(schema[word], f"{path}{place}")


@pytest.mark.parametrize("definition", [pytest.param(body, id=body["metadata"]["name"]) for body in all_crds()])
def test_each_field_of_our_definitions_is_missed_when_it_is_not_there(definition: Json) -> None:
    assert list(missing_fields(definition, definition)) == []
    for number, version in enumerate(definition["spec"]["versions"]):
        parts = version["schema"]["openAPIV3Schema"]["properties"]
        for part in {"spec", "status"} & parts.keys():
            for index, (path, schema) in enumerate(objects_in(parts[part], part)):
                for name in schema["properties"]:
                    older = deepcopy(definition)
                    stripped = older["spec"]["versions"][number]["schema"]["openAPIV3Schema"]["properties"][part]
                    del list(objects_in(stripped, part))[index][1]["properties"][name]
                    # All versions have one schema.
                    assert set(missing_fields(definition, older)) == {f"{path}.{name}"}


# --- checking ---

pytestmark = pytest.mark.looptime


class Rig:
    def __init__(self, *found: Json) -> None:
        self.cluster = FakeCluster(*((DEFINITION, in_cluster(body)) for body in found))
        self.updates: list[float] = []
        self.check = DefinitionCheck(self.cluster, [OURS], lambda: self.updates.append(now()))

    def update(self, body: Json) -> None:
        self.cluster.put(DEFINITION, in_cluster(body))

    @asynccontextmanager
    async def checking(self, seconds: float = 1.0) -> AsyncIterator[None]:
        task = asyncio.create_task(self.check.run())
        await asyncio.sleep(seconds)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def in_cluster(body: Json) -> Json:
    return {**body, "metadata": {**body["metadata"], "namespace": ""}}


def now() -> float:
    return asyncio.get_running_loop().time()


def failing(error: Exception) -> Any:
    async def hook(call: Call) -> None:
        raise error

    return hook


async def test_a_program_is_not_ready_before_its_definitions_are_checked() -> None:
    rig = Rig(OURS)
    assert rig.check.problem
    async with rig.checking():
        assert rig.check.problem == ""
        assert [call.key for call in rig.cluster.asked("get")] == [Key("", "toys.test.example")]


async def test_a_field_that_is_missing_is_reported_once_with_the_command_that_adds_it(logs: Logs) -> None:
    rig = Rig(toys("phase"))
    async with rig.checking(600):
        assert "toys.test.example is older than trainmaster and lacks status.restarts" in rig.check.problem
        assert UPDATE_COMMAND in rig.check.problem
    assert [line["because"] for line in logs] == [rig.check.problem]


async def test_an_update_of_the_definition_is_noticed_and_signalled_after_the_api_server_uses_it() -> None:
    rig = Rig(toys("phase"))
    async with rig.checking():
        rig.update(OURS)
        await asyncio.sleep(OUTDATED_SECONDS)
        assert (rig.check.problem, rig.updates) == ("", [])
        noticed = now()
        await asyncio.sleep(2 * OUTDATED_SECONDS)
        assert len(rig.updates) == 1
        assert rig.updates[0] >= noticed


async def test_an_older_definition_that_is_applied_later_is_noticed() -> None:
    rig = Rig(OURS)
    async with rig.checking():
        rig.update(toys("phase"))
        await asyncio.sleep(CHECK_SECONDS)
        assert "status.restarts" in rig.check.problem


async def test_a_definition_that_never_existed_is_no_problem() -> None:
    rig = Rig()
    async with rig.checking(600):
        assert (rig.check.problem, rig.check.gone) == ("", "")


async def test_a_definition_that_is_deleted_is_reported_once_until_it_is_installed_again(logs: Logs) -> None:
    rig = Rig(OURS)
    async with rig.checking():
        rig.cluster.take(DEFINITION, Key("", "toys.test.example"))
        await asyncio.sleep(600)
        sentence = rig.check.gone
        assert "toys.test.example was deleted, and with it all of its jobs" in sentence
        assert UPDATE_COMMAND in sentence
        rig.update(OURS)
        await asyncio.sleep(2 * OUTDATED_SECONDS)
        assert (rig.check.problem, rig.check.gone) == ("", "")
    assert [line["because"] for line in logs if line["log_level"] == "error"] == [sentence]


async def test_a_program_that_may_not_read_definitions_is_ready_and_says_so_once(logs: Logs) -> None:
    rig = Rig(toys("phase"))
    rig.cluster.before = failing(Forbidden("no", code=403))
    async with rig.checking(600):
        assert rig.check.problem == ""
    [line] = logs
    assert "deploy/rbac.yaml" in line["hint"]


async def test_an_api_server_that_does_not_answer_changes_nothing() -> None:
    rig = Rig(toys("phase"))
    async with rig.checking():
        before = rig.check.problem
        rig.cluster.before = failing(ServerError("etcd is busy", code=500))
        rig.update(OURS)
        await asyncio.sleep(600)
        assert rig.check.problem == before
