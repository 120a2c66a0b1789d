"""Pods on KWOK's nodes end as a kubelet ends them: this pod, and no other of the same name."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from testbed.admin import Admin, eventually
from testbed.answer import Object
from testbed.plane import KUBELET, KWOK, ControlPlane


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """With kubelets, and without a scheduler: a test says itself where its pods run."""
    with ControlPlane(binaries=binaries) as plane:
        plane.start_kwok()
        plane.add_nodes(1)
        yield plane


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Admin]:
    async with Admin.of(plane) as admin:
        yield admin


async def start(admin: Admin, namespace: str, name: str, *, node: str = "node-0") -> Object:
    """A pod that is bound to a node."""
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    pod = await admin.create("pods", body, namespace)
    await admin.bind(namespace, name, node)
    return pod


async def is_answered(plane: ControlPlane, pod: Object, code: int) -> None:
    """Wait until the API server answered the kubelet's delete of this pod."""
    meta = pod["metadata"]
    wanted = f"delete of {meta['namespace']}/{meta['name']} {meta['uid']}: {code}\n"

    async def look() -> None:
        log = (plane.folder / "kubelet.log").read_text()
        assert wanted in log, log[-2000:]

    await eventually(look)


async def test_a_pod_that_is_deleted_goes(admin: Admin, namespace: str) -> None:
    await start(admin, namespace, "goes")
    await admin.wait_for("pods", namespace, "goes", lambda pod: pod["status"]["phase"] == "Running")

    await admin.delete("pods", namespace, "goes")

    await admin.wait_gone("pods", namespace, "goes")


async def test_a_pod_that_was_created_anew_stays_when_the_delete_of_the_old_one_comes_late(
    plane: ControlPlane, admin: Admin, namespace: str
) -> None:
    old = await start(admin, namespace, "again")
    plane.pause(KUBELET)
    await admin.delete("pods", namespace, "again")
    await admin.delete("pods", namespace, "again", grace=0)
    new = await start(admin, namespace, "again")

    plane.resume(KUBELET)
    await is_answered(plane, old, 409)

    found = await admin.get("pods", namespace, "again")
    assert found["metadata"]["uid"] == new["metadata"]["uid"]
    assert "deletionTimestamp" not in found["metadata"]


async def test_a_pod_on_a_lost_node_stays_until_the_node_is_back(
    plane: ControlPlane, admin: Admin, namespace: str
) -> None:
    await start(admin, namespace, "stuck", node="late-0")
    await start(admin, namespace, "free")
    await admin.delete("pods", namespace, "stuck")
    await admin.delete("pods", namespace, "free")
    await admin.wait_gone("pods", namespace, "free")
    assert "deletionTimestamp" in (await admin.get("pods", namespace, "stuck"))["metadata"]

    plane.add_nodes(1, prefix="late")

    await admin.wait_gone("pods", namespace, "stuck")


async def test_pods_go_also_after_the_api_server_was_down(plane: ControlPlane, namespace: str) -> None:
    plane.restart_apiserver()

    async with Admin.of(plane) as admin:
        await start(admin, namespace, "after")
        await admin.delete("pods", namespace, "after")

        await admin.wait_gone("pods", namespace, "after")


def test_it_starts_and_ends_with_kwok(plane: ControlPlane) -> None:
    plane.kill(KWOK)
    assert not plane.is_running(KUBELET)

    plane.start_kwok()
    assert plane.is_running(KUBELET)
