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
    manifest: Manifest = yaml.safe_load(file.read_text())
    return manifest


def commands_in(file: Path) -> list[list[str]]:
    """What the comment at the top tells the reader to type, without the word kubectl."""
    comment = file.read_text().split("\napiVersion:")[0]
    return [line.split() for line in re.findall(r"^#   kubectl (.+)$", comment, re.MULTILINE)]


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
async def test_an_example_runs_to_its_good_end(file: Path, plane: ControlPlane, scene: Scene) -> None:
    async def kubectl(*words: str) -> str:
        return await asyncio.to_thread(plane.kubectl, "--namespace", scene.namespace, *words, timeout=200)

    manifest = read(file)
    applied = await kubectl("apply", "-f", str(file))
    job = Job(scene, await scene.admin.get(resource_of(manifest), scene.namespace, manifest["metadata"]["name"]))
    await job.live()
    for words in commands_in(file)[1:]:
        if words[0] != "logs":  # there is no kubelet to ask
            await kubectl(*words)

    assert applied.endswith(f"/{job.name} created\n")
    assert job.condition("Finished")["reason"] in ("Succeed", "Succeeded")
