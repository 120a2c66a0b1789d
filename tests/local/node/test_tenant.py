"""A node of a cluster with many users: by whom its pods must be meant for it, and with which rights it works."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.admin import Admin, eventually
from testbed.certificate import Pair
from testbed.plane import ControlPlane, User
from tests.local.node.life import Scene, container, state_of
from trainmaster.core.errors import BadConfig
from trainmaster.local.node.taint import KEY, TAINT

NAMESPACE = "tenants"
AS_A_NODE: dict[str, Any] = {"is_strict": True, "is_tainted": True}


@pytest.fixture(scope="module")
def node_plane(binaries: Path) -> Iterator[ControlPlane]:
    """A control plane that gives nodes the rights of nodes and no others, as kubeadm sets it up."""
    arguments = ("--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
    users = {"node": User(f"system:node:node-{NAMESPACE}", ("system:nodes",))}
    with ControlPlane(binaries=binaries, apiserver_arguments=arguments, users=users) as plane:
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield plane


@pytest.fixture
async def scene(node_plane: ControlPlane, node_pair: Pair, tmp_path: Path) -> AsyncIterator[Scene]:
    async with Admin.of(node_plane) as admin:
        scene = Scene(node_plane, admin, NAMESPACE, tmp_path, node_pair)
        yield scene
        for pod in await admin.list("pods", NAMESPACE):
            await admin.delete("pods", NAMESPACE, pod["metadata"]["name"], grace=0)
        await admin.delete("nodes", None, scene.name)
        scene.sweep()


async def test_only_pods_that_tolerate_the_node_by_name_run_on_it(scene: Scene) -> None:
    everything = [{"operator": "Exists"}]
    ours = [{"key": KEY, "operator": "Exists", "effect": "NoSchedule"}]
    async with scene.node(**AS_A_NODE):
        node = await scene.admin.get("nodes", None, scene.name)
        await scene.pod("plain", "echo ran >> runs", tolerations=[])
        await scene.pod("daemon", "echo ran >> runs", tolerations=everything)
        await scene.pod("meant", "echo ran >> runs", tolerations=ours)
        ends = {name: (await scene.ended(name))["status"] for name in ("plain", "daemon", "meant")}

    assert node["spec"]["taints"] == [{"key": "trainmaster.dev/process-node", "effect": "NoSchedule"}]
    assert {name: (end["phase"], end.get("reason")) for name, end in ends.items()} == {
        "plain": ("Failed", "TaintToleration"),
        "daemon": ("Failed", "TaintToleration"),
        "meant": ("Succeeded", None),
    }
    assert (scene.workdir / "runs").read_text() == "ran\n"


async def test_a_pod_that_asks_for_another_user_fails_and_nothing_of_it_runs(scene: Scene) -> None:
    async with scene.node(**AS_A_NODE):
        await scene.pod("other", "touch ran", securityContext={"runAsUser": 12345})
        await scene.pod("own", "id -u > own", securityContext={"runAsUser": os.geteuid()})
        other, own = await scene.ended("other"), await scene.ended("own")

    assert (other["status"]["phase"], other["status"]["reason"]) == ("Failed", "UnsupportedSecurityContext")
    assert "spec.securityContext.runAsUser: processes of this node run as user" in other["status"]["message"]
    assert own["status"]["phase"] == "Succeeded"
    assert not (scene.workdir / "ran").exists()


async def test_local_mode_mentions_what_it_ignores_in_an_event(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", container("true", securityContext={"readOnlyRootFilesystem": True}))
        await scene.ended("a")
        await eventually(lambda: _mentioned(scene, "a", "container main: securityContext.readOnlyRootFilesystem: "))


async def test_a_node_mentions_a_default_profile_that_it_does_not_have_in_an_event(scene: Scene) -> None:
    async with scene.node(**AS_A_NODE):
        await scene.pod("profiled", "true", securityContext={"seccompProfile": {"type": "RuntimeDefault"}})
        pod = await scene.ended("profiled")
        await eventually(lambda: _mentioned(scene, "profiled", "spec.securityContext.seccompProfile: "))

    assert pod["status"]["phase"] == "Succeeded"


async def _mentioned(scene: Scene, pod: str, field: str) -> None:
    events = [
        each for each in await scene.admin.list("events", scene.namespace) if pod == each["involvedObject"]["name"]
    ]
    (ignored,) = [event for event in events if event["reason"] == "SecurityContextIgnored"]
    assert field in ignored["message"]


async def test_a_node_needs_only_the_rights_of_a_node(scene: Scene) -> None:
    """Those that the Node authorizer gives it: config maps and secrets of its own pods, and no list of any."""
    for resource in ("configmaps", "secrets"):
        await scene.admin.create(resource, {"metadata": {"name": "mine"}, "data": {"x": "eA=="}}, scene.namespace)
    environment = [
        {"name": name, "valueFrom": {source: {"name": "mine", "key": "x"}}}
        for name, source in (("A", "configMapKeyRef"), ("B", "secretKeyRef"))
    ]
    async with scene.node(kubeconfig=scene.plane.kubeconfig("node"), **AS_A_NODE):
        await scene.pod("a", container("echo $A $B > values; exit 3", env=environment), policy="Never")
        pod = await scene.ended("a")
        await scene.delete("a")

    assert state_of(pod)["terminated"]["exitCode"] == 3
    assert (scene.workdir / "values").read_text() == "eA== x\n"


async def test_a_node_that_exists_without_the_taint_gets_it(scene: Scene) -> None:
    other = {"key": "other", "effect": "NoSchedule"}
    await scene.admin.create("nodes", {"metadata": {"name": scene.name}, "spec": {"taints": [other]}})

    async with scene.node(**AS_A_NODE):
        node = await scene.admin.get("nodes", None, scene.name)

    assert node["spec"]["taints"] == [other, TAINT]


async def test_a_node_that_may_not_change_its_taints_says_who_can(scene: Scene) -> None:
    await scene.admin.create("nodes", {"metadata": {"name": scene.name}})

    with pytest.raises(ExceptionGroup) as refused:
        async with scene.node(kubeconfig=scene.plane.kubeconfig("node"), **AS_A_NODE):
            pass

    command = f"kubectl taint node {scene.name} trainmaster.dev/process-node:NoSchedule"
    assert refused.group_contains(BadConfig, match=command)
