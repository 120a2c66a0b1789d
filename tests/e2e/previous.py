"""The release before this one: its manifests and its image, from the history of this repository.

There is no tag yet, so a commit stands for it. A clone needs its history: `git clone --depth=1` does not have it.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import yaml

from deploy.image import archive, base, dockerfile, environment, layer
from deploy.manager import image as this_image
from testbed.cluster.image import debian
from testbed.operator import REPOSITORY
from tests.build import Json

COMMIT = "5442cc50c82279c72a2f3091ffbc82e82ba6e2e8"
"""The last one before `kubectl get` had ready, restarts and a sentence for every kind."""
IMAGE = "trainmaster:previous"
TIMEOUT = 300.0


def checkout(folder: Path) -> Path:
    """The files of that commit."""
    command = ["git", "-C", str(REPOSITORY), "archive", COMMIT, "src", "deploy", "requirements", "pyproject.toml"]
    command += ["README.md", "LICENSE", "Dockerfile"]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, f"this clone lacks {COMMIT}: git fetch --unshallow; {done.stderr.decode()}"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def bodies(tree: Path) -> list[Json]:
    """What its install.yaml has, as its own code generates it."""
    code = "from deploy import manager; print(manager.to_yaml(manager.ALL))"
    environ = {"PYTHONPATH": f"{tree}:{tree / 'src'}"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return list(yaml.safe_load_all(done.stdout.replace(f"image: {this_image()}", f"image: {IMAGE}")))


def write_image(tree: Path, file: Path) -> None:
    """The archive of its image, built as that of this release is."""
    settings = dockerfile.settings((tree / "Dockerfile").read_text())
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        below = base.given(debian(), scratch, 0)
        wheels = environment.wheels(tree / "requirements" / "run.txt", below, scratch / "wheels")
        own = environment.own_wheel(scratch / "own", 0, tree)
        entries = environment.entries(settings.prefix, below, [*wheels, own])
        ours = layer.write(entries, scratch / "ours.tar", 0)
        env = dockerfile.expand(settings.env, below.env)
        config = archive.Config(env=env, user=settings.user, entrypoint=settings.entrypoint)
        archive.write(file, [f"docker.io/library/{IMAGE}"], [*below.layers, ours], config, 0)
