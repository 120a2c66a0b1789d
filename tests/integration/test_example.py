"""Every file in examples/ is applied as its first lines say, and comes to its good end."""

import asyncio
import re
from pathlib import Path

import pytest
import yaml

from testbed.operator import REPOSITORY
from testbed.plane import ControlPlane
from tests.integration.scene import Job, Scene
from tests.manifests.build import Manifest, resource_of

FILES = sorted((REPOSITORY / "examples").glob("*.yaml"))

each_file = pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in FILES])


def read(file: Path) -> Manifest:
    """Its job, which comes last; what stands before it is for the job."""
    *_, manifest = yaml.safe_load_all(file.read_text())
    found: Manifest = manifest
    return found


def commands_in(file: Path) -> list[list[str]]:
    """What the comment at the top tells the reader to type, without the word kubectl."""
    comment = file.read_text().split("\napiVersion:")[0]
    return [line.split() for line in re.findall(r"^#   kubectl (.+)$", comment, re.MULTILINE)]


def namespaces_in(file: Path) -> set[str]:
    """Of objects that are not in that of the reader."""
    return {name for body in yaml.safe_load_all(file.read_text()) if (name := body["metadata"].get("namespace"))}


def in_namespace(plane: ControlPlane, namespace: str, folder: Path) -> Path:
    """The kubeconfig of somebody who works in a namespace."""
    config = yaml.safe_load(Path(plane.kubeconfig("admin")).read_text())
    for entry in config["contexts"]:
        entry["context"]["namespace"] = namespace
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


def test_there_are_examples() -> None:
    assert FILES


@each_file
def test_an_example_says_what_it_shows_and_how_to_try_it(file: Path) -> None:
    first, *_ = file.read_text().splitlines()
    apply, *others = commands_in(file)

    assert re.match(r"# [A-Z].{20}", first)
    assert apply == ["apply", "-f", f"examples/{file.name}"]
    assert others
    assert all(read(file)["metadata"]["name"] in " ".join(command) for command in others)


@each_file
@pytest.mark.usefixtures("operator")
async def test_an_example_runs_to_its_good_end(file: Path, plane: ControlPlane, scene: Scene, tmp_path: Path) -> None:
    async def kubectl(*words: str) -> str:
        # Not by --namespace, which refuses what has a namespace of its own.
        config = await asyncio.to_thread(in_namespace, plane, scene.namespace, tmp_path)
        return await asyncio.to_thread(plane.kubectl, f"--kubeconfig={config}", *words, timeout=200)

    manifest = read(file)
    for name in namespaces_in(file):
        if await scene.admin.find("namespaces", None, name) is None:
            await scene.admin.create("namespaces", {"metadata": {"name": name}})
    applied = await kubectl("apply", "-f", str(file))
    job = Job(scene, await scene.admin.get(resource_of(manifest), scene.namespace, manifest["metadata"]["name"]))
    await job.live()
    for words in commands_in(file)[1:]:
        if words[0] != "logs":  # there is no kubelet to ask
            await kubectl(*words)

    assert applied.endswith(f"/{job.name} created\n")
    assert job.condition("Finished")["reason"] in ("Succeed", "Succeeded")
