"""Volumes: real paths inside of containers, and nothing of them outside."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.local.node.life import Scene, container, state_of

Object = dict[str, Any]


def mounting(script: str, **paths: str) -> Object:
    """A container that mounts volumes by name."""
    return container(script, volumeMounts=[{"name": name, "mountPath": path} for name, path in paths.items()])


async def test_containers_of_a_pod_share_an_empty_folder(scene: Scene) -> None:
    async with scene.node():
        await scene.pod(
            "a",
            mounting("cat /cache/x > said", v="/cache"),
            initContainers=[{**mounting("echo shared > /scratch/x", v="/scratch"), "name": "init"}],
            volumes=[{"name": "v", "emptyDir": {}}],
        )
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded", pod["status"]
    assert (scene.workdir / "said").read_text() == "shared\n"
    assert not os.access("/cache", os.F_OK)


async def test_folder_of_the_machine_is_mounted_elsewhere(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("mine")
    volume = {"name": "v", "hostPath": {"path": str(tmp_path / "data"), "type": "Directory"}}
    mount = {"name": "v", "mountPath": "/input", "readOnly": True}
    async with scene.node():
        await scene.pod("a", container("cat /input/x > said; touch /input/y", volumeMounts=[mount]), volumes=[volume])
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Failed"  # it cannot be written to
    assert (scene.workdir / "said").read_text() == "mine"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["x"]


async def test_config_map_and_secret_are_files(scene: Scene) -> None:
    await scene.admin.create(
        "configmaps", {"metadata": {"name": "settings"}, "data": {"a.txt": "A", "b.txt": "B"}}, scene.namespace
    )
    await scene.admin.create("secrets", {"metadata": {"name": "login"}, "stringData": {"p": "pw"}}, scene.namespace)
    volumes = [
        {"name": "c", "configMap": {"name": "settings", "items": [{"key": "a.txt", "path": "deep/er.txt"}]}},
        {"name": "s", "secret": {"secretName": "login", "defaultMode": 0o400}},
        {"name": "d", "downwardAPI": {"items": [{"path": "who", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    script = "cat /c/deep/er.txt /s/p /d/who > said; ls /c >> said; stat -c %a /s/p >> said; touch /c/x"
    async with scene.node():
        await scene.pod("a", mounting(script, c="/c", s="/s", d="/d"), volumes=volumes)
        pod = await scene.ended("a")

    assert (scene.workdir / "said").read_text() == "Apwadeep\n400\n"
    assert pod["status"]["phase"] == "Failed"  # the last command: it cannot be written to


async def test_pod_waits_for_a_config_map_that_it_mounts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.local.node.worker.RETRY_SECONDS", 0.1)
    volumes = [{"name": "c", "configMap": {"name": "later"}}]
    async with scene.node():
        await scene.pod("a", mounting("cat /c/k > said", c="/c"), volumes=volumes)
        waiting = await scene.until("a", lambda pod: state_of(pod)["waiting"]["message"])
        await scene.admin.create("configmaps", {"metadata": {"name": "later"}, "data": {"k": "v"}}, scene.namespace)
        await scene.ended("a")

    assert state_of(waiting)["waiting"] == {
        "reason": "ContainerCreating",
        "message": 'MountVolume.SetUp failed for volume "c" : configmap "later" not found',
    }
    assert (scene.workdir / "said").read_text() == "v"


async def test_sub_path_is_a_part_of_a_volume(scene: Scene) -> None:
    mounts = [
        {"name": "v", "mountPath": "/whole"},
        {"name": "v", "mountPath": "/part", "subPathExpr": "of/$(WHO)"},
    ]
    env = [{"name": "WHO", "value": "me"}]
    async with scene.node():
        await scene.pod(
            "a",
            container("echo x > /part/y; cat /whole/of/me/y > said", volumeMounts=mounts, env=env),
            volumes=[{"name": "v", "emptyDir": {}}],
        )
        await scene.ended("a")

    assert (scene.workdir / "said").read_text() == "x\n"


async def test_missing_host_path_has_a_message(scene: Scene) -> None:
    volume = {"name": "v", "hostPath": {"path": "/no/such/folder", "type": "Directory"}}
    async with scene.node():
        await scene.pod("a", mounting("true", v="/v"), volumes=[volume])
        pod = await scene.until("a", lambda pod: state_of(pod)["waiting"]["message"])

    message = "hostPath type check failed: /no/such/folder is not a Directory"
    assert state_of(pod)["waiting"]["message"] == f'MountVolume.SetUp failed for volume "v" : {message}'


async def test_files_follow_their_config_map_at_once(scene: Scene) -> None:
    await scene.admin.create("configmaps", {"metadata": {"name": "c"}, "data": {"k": "old"}}, scene.namespace)
    script = "cat /c/k > said; until [ $(cat /c/k) = new ]; do sleep 0.02; done; [ ! -e /c/gone ]"
    async with scene.node():
        await scene.pod("a", mounting(script, c="/c"), volumes=[{"name": "c", "configMap": {"name": "c"}}])
        await scene.appears("said")
        await scene.admin.patch("configmaps", scene.namespace, "c", {"data": {"k": "new"}})
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded"
    assert (scene.workdir / "said").read_text() == "old"


async def test_files_follow_their_secret_in_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.local.node.worker.REFRESH_SECONDS", 0.1)
    await scene.admin.create("secrets", {"metadata": {"name": "s"}, "stringData": {"k": "old"}}, scene.namespace)
    script = "cat /s/k > said; until [ $(cat /s/k) = new ]; do sleep 0.02; done"
    async with scene.node():
        await scene.pod("a", mounting(script, s="/s"), volumes=[{"name": "s", "secret": {"secretName": "s"}}])
        await scene.appears("said")
        await scene.admin.patch("secrets", scene.namespace, "s", {"stringData": {"k": "new"}})
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded"
    assert (scene.workdir / "said").read_text() == "old"
