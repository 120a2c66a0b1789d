"""The build itself: base, our layer, archive, list of contents."""

import json
import os
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from deploy.image import archive, base, dockerfile, environment, layer
from deploy.image.sbom import sbom

ROOT = environment.ROOT


class Built(NamedTuple):
    """What a build wrote."""

    archive: Path
    sbom: Path
    digest: str


def version() -> str:
    """The version of this checkout."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def epoch() -> int:
    """The time that files get at most: SOURCE_DATE_EPOCH, else that of the last commit."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise base.ImageFailed("this is no git repository, so the time of the image is to be said: SOURCE_DATE_EPOCH=…")
    return int(done.stdout)


def build(target: Path, given: Path | None = None) -> Built:
    """Write the archive and its SBOM into a folder; `given` is a base."""
    when, number = epoch(), version()
    settings = dockerfile.settings(dockerfile.DOCKERFILE.read_text())
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-image-") as name:
        scratch = Path(name)
        below = base.given(given, scratch, when) if given else base.debian(scratch, when)
        needed = environment.wheels(environment.RUN, below, scratch / "wheels")
        installed = [*needed, environment.own_wheel(scratch / "own", when)]
        ours = layer.write(environment.entries(settings.prefix, below, installed), scratch / "ours.tar", when)
        config = archive.Config(
            env=dockerfile.expand(settings.env, below.env),
            user=settings.user,
            entrypoint=settings.entrypoint,
            labels={"org.opencontainers.image.title": "trainmaster", "org.opencontainers.image.version": number},
        )
        file = target / f"trainmaster-{number}.tar"
        names = [f"docker.io/library/trainmaster:{number}"]
        digest = archive.write(file, names, [*below.layers, ours], config, when)
    contents = target / f"trainmaster-{number}.spdx.json"
    contents.write_text(json.dumps(sbom(number, digest, below.packages, installed, when), indent=1) + "\n")
    return Built(file, contents, digest)
