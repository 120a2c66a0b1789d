"""Images of the cluster: pause and CoreDNS from what `build` made, and one with the examples of this repository."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.image import archive, base, environment, layer
from deploy.image.build import build
from testbed.build import user_site
from testbed.cluster import config, dns

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

EXAMPLES = ("mock", "digits", "elastic", "cartpole", "busybox", "python:3-slim")
"""The images that the examples name. They are one here: Debian, Python, the packages, and the examples."""

_PACKAGES = (
    "cloudpickle",
    "farama-notifications",
    "gymnasium",
    "joblib",
    "narwhals",
    "numpy",
    "scikit-learn",
    "scipy",
    "threadpoolctl",
    "typing-extensions",
)
_PREFIX = "/opt/job"


def write_all(binaries: Path, folder: Path) -> list[Path]:
    """The archives of all images: pause, CoreDNS, ours, and the examples."""
    folder.mkdir()
    return [
        _write(binaries / "pause", config.PAUSE_IMAGE, folder),
        _write(binaries / "coredns", dns.IMAGE, folder),
        build(folder, debian()).archive,
        write_examples(folder),
    ]


def _write(program: Path, name: str, folder: Path) -> Path:
    """An image with one static program."""
    entry = layer.Entry(program.name, program.read_bytes(), 0o755)
    content = layer.write([entry], folder / f"{program.name}.layer", 0)
    started = archive.Config(env={"PATH": PATH}, entrypoint=[f"/{program.name}"])
    file = folder / f"{program.name}.tar"
    archive.write(file, [name], [content], started, 0)
    content.file.unlink()
    return file


def debian() -> Path:
    """The root file system of Debian's packages, built once into the user's cache; it can be a BASE."""
    file = user_site().cache / "image" / f"debian-{'-'.join(base.PACKAGES)}.tar"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            [built] = base.debian(Path(scratch), 0).layers
            shutil.move(built.file, file)
    return file


def write_examples(folder: Path) -> Path:
    """The archive of the image with the examples, under all of its names."""
    file = folder / "examples.tar"
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        below = base.given(debian(), scratch, 0)
        requirements = scratch / "requirements.txt"
        requirements.write_text(_pins(_PACKAGES))
        wheels = environment.wheels(requirements, below, scratch / "wheels")
        packages = layer.write(environment.entries(_PREFIX, below, wheels), scratch / "packages.tar", 0)
        sources = [
            each
            for each in layer.entries_of(environment.ROOT / "examples", f"{_PREFIX[1:]}/examples")
            if "__pycache__" not in each.name
        ]
        programs = layer.write(sources, scratch / "programs.tar", 0)
        started = archive.Config(
            env={**below.env, "PATH": f"{_PREFIX}/bin:{below.env['PATH']}", "PYTHONUNBUFFERED": "1"}, folder=_PREFIX
        )
        archive.write(file, _names(EXAMPLES), [*below.layers, packages, programs], started, 0)
    return file


def _names(short: Sequence[str]) -> list[str]:
    return [f"docker.io/library/{each if ':' in each else f'{each}:latest'}" for each in short]


def _pins(packages: Sequence[str]) -> str:
    """The lines of these packages in the pins of development."""
    text = (environment.ROOT / "requirements" / "dev.txt").read_text()
    # A package can have several, each for some versions of Python.
    blocks = re.split(r"(?m)^(?=[a-z])", text)
    return "".join(block for block in blocks if block.partition("==")[0] in packages)
