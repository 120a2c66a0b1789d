"""The garbage collector, through the API: the same tests on the embedded one and on Kubernetes' own."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.plane import ControlPlane
from tests.conftest import namespace_name
from tests.local.apiserver.client import Client, until

HOLD = ["example.com/hold"]


class Scene:
    """A client, and the config maps of a namespace of its own."""

    def __init__(self, api: Client, namespace: str) -> None:
        self.api = api
        self.maps = f"/api/v1/namespaces/{namespace}/configmaps"

    async def make(self, name: str, *owners: dict[str, Any], finalizers: list[str] | None = None) -> dict[str, Any]:
        meta = {"name": name, "ownerReferences": list(owners), "finalizers": finalizers or []}
        made: dict[str, Any] = await self.api.create(self.maps, {"metadata": meta})
        return made

    async def delete(self, name: str, policy: str | None = None) -> dict[str, Any]:
        body = {"propagationPolicy": policy} if policy else None
        deleted: dict[str, Any] = await self.api.delete(f"{self.maps}/{name}", body)
        return deleted

    async def merge(self, name: str, **metadata: Any) -> None:
        await self.api.merge(f"{self.maps}/{name}", {"metadata": metadata})

    async def until(self, is_met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return await until(self.api, self.maps, is_met)


@pytest.fixture(scope="module")
def collecting(binaries: Path) -> Iterator[ControlPlane]:
    """A control plane whose garbage collector runs."""
    with ControlPlane(binaries=binaries) as plane:
        plane.start_controller_manager(["garbage-collector-controller"])
        yield plane


@pytest.fixture
async def on_ours(api: Client) -> Scene:
    return Scene(api, "default")


@pytest.fixture
async def on_real(collecting: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    name = namespace_name(next(_numbers), request.node.originalname)
    async with Client(collecting.url, collecting.admin_token, collecting.ca_file) as client:
        await client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        yield Scene(client, name)


@pytest.fixture(params=["on_ours", pytest.param("on_real", marks=pytest.mark.cluster)])
def scene(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.getfixturevalue(request.param)
    return found


_numbers = itertools.count(1)


def owner(of: dict[str, Any], *, blocks: bool = False, controls: bool = False) -> dict[str, Any]:
    meta = of["metadata"]
    found = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}
    return {**found, "blockOwnerDeletion": blocks, "controller": controls}


async def test_dependents_are_deleted_with_their_owner_recursively(scene: Scene) -> None:
    parent = await scene.make("parent")
    child = await scene.make("child", owner(parent))
    await scene.make("grandchild", owner(child))
    await scene.make("stranger")
    await scene.delete("parent")
    assert list(await scene.until(lambda found: len(found) == 1)) == ["stranger"]


async def test_an_object_with_another_owner_stays_and_loses_the_deleted_reference(scene: Scene) -> None:
    first, second = await scene.make("first"), await scene.make("second")
    await scene.make("child", owner(first), owner(second))
    await scene.delete("first")
    found = await scene.until(lambda found: len(found["child"]["metadata"]["ownerReferences"]) == 1)
    assert found["child"]["metadata"]["ownerReferences"][0]["name"] == "second"


async def test_an_object_whose_owner_never_existed_is_deleted(scene: Scene) -> None:
    parent = await scene.make("parent")
    await scene.make("child", {**owner(parent), "uid": "00000000-0000-0000-0000-000000000000"})
    assert list(await scene.until(lambda found: len(found) == 1)) == ["parent"]


async def test_an_object_with_an_owner_of_an_unknown_kind_stays(scene: Scene) -> None:
    parent = await scene.make("parent")
    await scene.make("kept", {**owner(parent), "apiVersion": "example.com/v1", "kind": "Thing"})
    # Whatever is created later is handled later: when that is gone, the other one was looked at.
    await scene.make("orphan", {**owner(parent), "uid": "00000000-0000-0000-0000-000000000000"})
    assert set(await scene.until(lambda found: "orphan" not in found)) == {"parent", "kept"}


async def test_an_orphaned_dependent_stays(scene: Scene) -> None:
    parent = await scene.make("parent")
    await scene.make("child", owner(parent))
    deleted = await scene.delete("parent", "Orphan")
    assert deleted["metadata"]["finalizers"] == ["orphan"]
    found = await scene.until(lambda found: len(found) == 1)
    assert "ownerReferences" not in found["child"]["metadata"]


async def test_in_the_foreground_the_owner_is_deleted_last(scene: Scene) -> None:
    parent = await scene.make("parent")
    await scene.make("blocking", owner(parent, blocks=True), finalizers=HOLD)
    await scene.make("other", owner(parent))
    deleted = await scene.delete("parent", "Foreground")
    assert deleted["metadata"]["finalizers"] == ["foregroundDeletion"]
    found = await scene.until(lambda found: "deletionTimestamp" in found["blocking"]["metadata"])
    assert "parent" in found
    await scene.merge("blocking", finalizers=None)
    assert await scene.until(lambda found: not found) == {}


async def test_in_the_foreground_nothing_is_waited_for_when_nothing_blocks(scene: Scene) -> None:
    parent = await scene.make("parent")
    await scene.make("child", owner(parent), finalizers=HOLD)
    await scene.delete("parent", "Foreground")
    found = await scene.until(lambda found: "parent" not in found)
    assert "child" in found


async def test_an_owner_is_deleted_when_its_last_dependent_stops_blocking(scene: Scene) -> None:
    parent = await scene.make("parent")
    await scene.make("blocking", owner(parent, blocks=True), finalizers=HOLD)
    await scene.delete("parent", "Foreground")
    await scene.until(lambda found: "deletionTimestamp" in found["blocking"]["metadata"])
    await scene.merge("blocking", ownerReferences=[owner(parent)])
    assert list(await scene.until(lambda found: "parent" not in found)) == ["blocking"]


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
async def test_a_chain_is_deleted_under_every_policy(scene: Scene, policy: str) -> None:
    last = await scene.make("c0")
    for index in range(1, 6):
        last = await scene.make(f"c{index}", owner(last, blocks=True))
    await scene.delete("c0", policy)
    assert await scene.until(lambda found: not found) == {}


async def test_many_dependents_are_deleted(scene: Scene) -> None:
    parent = await scene.make("parent")
    for index in range(60):
        await scene.make(f"child-{index}", owner(parent))
    await scene.delete("parent")
    assert await scene.until(lambda found: not found) == {}
