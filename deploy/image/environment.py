"""A virtual environment as entries of a layer: made of wheels, without running anything of the image.

A wheel is a zip file that is unpacked where Python looks. Its bytecode is written here, because the file system of the
container is read-only: without it every start would compile everything again.
"""

import configparser
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.image.base import TIMEOUT, Base, ImageFailed
from deploy.image.layer import Entry, entries_of, sha256

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "requirements" / "run.txt"

# Run by a process of its own with a fixed hash seed. The invalidation mode leaves times out of the bytecode.
_COMPILE = """
import compileall, py_compile, sys
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
sys.exit(not compileall.compile_dir(sys.argv[1], quiet=2, stripdir=sys.argv[1], prependdir=sys.argv[2],
                                    invalidation_mode=mode))
"""


class Wheel(NamedTuple):
    """A wheel by its file."""

    name: str
    version: str
    file: Path
    sha256: str


def wheels(requirements: Path, base: Base, folder: Path) -> list[Wheel]:
    """Fetch the wheels of a requirements file with hashes, for the Python of the base."""
    if (mine := f"{sys.version_info.major}.{sys.version_info.minor}") != base.version:
        raise ImageFailed(
            f"the image has Python {base.version}, and only that one can choose its wheels and compile them;"
            f" this is {mine}: run make PYTHON=python{base.version} image in a fresh clone"
        )
    machine = platform.machine()
    command = ["download", "--no-deps", "--require-hashes", "--only-binary=:all:", f"--dest={folder}"]
    command += [f"--requirement={requirements}", "--implementation=cp", f"--python-version={base.version}"]
    command += [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(36, 16, -1)]
    command += [f"--platform=manylinux2014_{machine}"]
    _pip(command, 0)
    return _found(folder)


def own_wheel(folder: Path, epoch: int, source: Path = ROOT) -> Wheel:
    """Our own wheel, built from this checkout or another one."""
    _pip(["wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(source)], epoch)
    [wheel] = _found(folder)
    return wheel


def entries(prefix: str, base: Base, installed: Sequence[Wheel]) -> list[Entry]:
    """The virtual environment with these wheels and their commands."""
    prefix = prefix.strip("/")
    library = f"lib/python{base.version}/site-packages"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        site = root / library
        site.mkdir(parents=True)
        scripts = [script for wheel in installed for script in _unpack(wheel.file, site)]
        _compile(root, f"/{prefix}")
        found = entries_of(root, prefix)
    config = f"home = {Path(base.python).parent}\ninclude-system-site-packages = false\nversion = {base.version}\n"
    found.append(Entry(f"{prefix}/pyvenv.cfg", config.encode()))
    found += [Entry(f"{prefix}/bin/{name}", link=base.python) for name in ("python", "python3")]
    for name, module, function in scripts:
        text = f"#!/{prefix}/bin/python\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        found.append(Entry(f"{prefix}/bin/{name}", text.encode(), 0o755))
    return found


def _unpack(wheel: Path, site: Path) -> Iterator[tuple[str, str, str]]:
    """Unpack a wheel; yields its commands: name, module, function."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".data/" in name.split("/", 1)[0] + "/":
                raise ImageFailed(f"{wheel.name} has files for other folders ({name}), which are not supported")
        archive.extractall(site)
        for name in archive.namelist():
            if name.endswith(".dist-info/entry_points.txt"):
                points = configparser.ConfigParser(delimiters=("=",))
                points.optionxform = str  # type: ignore[assignment, method-assign]
                points.read_string(archive.read(name).decode())
                if points.has_section("console_scripts"):
                    for command, target in points.items("console_scripts"):
                        module, _, function = target.partition(":")
                        yield command, module.strip(), function.split("[")[0].strip()


def _compile(folder: Path, prefix: str) -> None:
    command = [sys.executable, "-P", "-S", "-c", _COMPILE, str(folder), prefix]
    # A package may have files that are not Python of this version; they are not imported either.
    subprocess.run(command, env={"PYTHONHASHSEED": "0"}, timeout=TIMEOUT, check=False, capture_output=True)


def _found(folder: Path) -> list[Wheel]:
    found = []
    for file in sorted(folder.glob("*.whl")):
        name, version = file.name.split("-")[:2]
        found.append(Wheel(name, version, file, sha256(file).partition(":")[2]))
    return found


def _pip(arguments: Sequence[str], epoch: int) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check", *arguments]
    environ = {**os.environ, **({"SOURCE_DATE_EPOCH": str(epoch)} if epoch else {})}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode != 0:
        raise ImageFailed(f"pip {arguments[0]} failed: {done.stderr.strip()[-500:]}")
