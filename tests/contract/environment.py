"""The clients of the contract tests, and a virtual environment for each of them in the user's cache.

Clients need Pythons and packages that are too old or too large for our own environment. A folder is named after the
client and a hash of what decides its content, so an environment is made again when its requirements change.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from testbed.build import user_site

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
BUILD = REQUIREMENTS / "contract-build.txt"
LONGEST_INSTALL = 3600.0
LONGEST_LOOK = 30.0


class Client(NamedTuple):
    """One client: its Python, the packages whose versions are reported, and the tests that use it by ``variable``."""

    name: str
    python: str
    variable: str
    packages: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def requirements(self) -> Path:
        return REQUIREMENTS / f"contract-{self.name}.txt"


CLIENTS = (
    Client(
        name="di-engine-0.2.3",
        python="3.8",
        variable="TRAINMASTER_DI_ENGINE_PYTHON",
        packages=("DI-engine", "torch"),
        tests=("tests/contract/test_di_engine.py", "tests/contract/test_di_engine_job.py"),
    ),
    Client(
        name="di-engine-0.5.3",
        python="3.8",
        variable="TRAINMASTER_DITASK_PYTHON",
        packages=("DI-engine", "torch", "pynng"),
        tests=("tests/contract/test_ditask.py",),
    ),
    Client(
        name="kubeflow-training-1.8.1",
        python="3.11",
        variable="TRAINMASTER_KUBEFLOW_PYTHON",
        packages=("kubeflow-training", "kubernetes"),
        tests=("tests/contract/kubeflow",),
    ),
    Client(
        name="mxnet-1.9.1",
        python="3.8",
        variable="TRAINMASTER_MXNET_PYTHON",
        packages=("mxnet", "numpy"),
        tests=("tests/local/test_mxnet.py",),
    ),
    Client(
        name="torch-2.15.0",
        python="3.11",
        variable="TRAINMASTER_TORCH_PYTHON",
        packages=("torch", "numpy"),
        tests=("tests/contract/framework/test_torch.py",),
    ),
    Client(
        name="tensorflow-cpu-2.21.0",
        python="3.11",
        variable="TRAINMASTER_TENSORFLOW_PYTHON",
        packages=("tensorflow-cpu", "keras"),
        tests=("tests/contract/framework/test_tensorflow.py",),
    ),
    Client(
        name="paddlepaddle-3.3.1",
        python="3.11",
        variable="TRAINMASTER_PADDLE_PYTHON",
        packages=("paddlepaddle",),
        tests=("tests/contract/framework/test_paddle.py",),
    ),
    Client(
        name="jax-0.10.2",
        python="3.11",
        variable="TRAINMASTER_JAX_PYTHON",
        packages=("jax", "jaxlib"),
        tests=("tests/contract/framework/test_jax.py",),
    ),
)


class NoPython(Exception):
    """There is no Python of the version that a client needs; the message says what to do."""


class InstallFailed(Exception):
    """The environment of a client could not be made; the message says where the log is."""


# --- the Python of a client ---


def find_python(version: str, environ: Mapping[str, str]) -> Path:
    """The Python that a variable such as PYTHON38 names, or that is in PATH, or that pyenv has."""
    variable = f"PYTHON{version.replace('.', '')}"
    if named := environ.get(variable):
        if _version(named) != version:
            raise NoPython(f"{variable}={named} is no Python {version} that can make virtual environments")
        return Path(named)
    for candidate in _candidates(version, environ.get("PATH", os.defpath)):
        if _version(candidate) == version:
            return Path(candidate)
    raise NoPython(
        f"there is no Python {version} in PATH or in pyenv; install one (pyenv install {version}), or name it: "
        f"make contract {variable}=/path/to/python{version}"
    )


def _candidates(version: str, path: str) -> Iterator[str]:
    if found := shutil.which(f"python{version}", path=path):  # may be a shim of pyenv that has no such version
        yield found
    if pyenv := shutil.which("pyenv", path=path):
        root = _output([pyenv, "root"])
        yield from sorted(map(str, Path(root).glob(f"versions/{version}.*/bin/python{version}")), reverse=True)


def _version(python: str) -> str:
    return _output([python, "-c", "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"])


def _output(command: Sequence[str]) -> str:
    """What a command prints; empty when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_LOOK)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def versions_of(python: Path, packages: Sequence[str]) -> str:
    """``Python 3.8.18, mxnet 1.9.1``."""
    code = (
        "import platform, sys; from importlib.metadata import version\n"
        "print(', '.join(['Python ' + platform.python_version(), *(p + ' ' + version(p) for p in sys.argv[1:])]))"
    )
    return _output([str(python), "-c", code, *packages]) or f"{python} does not have {', '.join(packages)}"


# --- its environment ---


def folder_of(client: Client, python: Path, cache: Path) -> Path:
    digest = hashlib.sha256(str(python.resolve()).encode())
    for file in (BUILD, client.requirements):
        digest.update(file.read_bytes())
    return cache / "contract" / f"{client.name}-{digest.hexdigest()[:12]}"


def environment(
    client: Client,
    environ: Mapping[str, str],
    *,
    say: Callable[[str], None],
    cache: Path | None = None,
) -> Path:
    """The Python of the client's environment, which is made when it does not exist yet."""
    if named := environ.get(client.variable):
        return Path(named)
    base = find_python(client.python, environ)
    folder = folder_of(client, base, cache or user_site().cache)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(Path(f"{folder}.lock")):
        if not _stamp(folder).exists():
            say(f"{client.name}: installing into {folder}; the log is {folder}.log …")
            _install(client, base, folder)
            _stamp(folder).touch()
    return folder / "bin" / "python"


def _stamp(folder: Path) -> Path:
    """Exists when the environment is complete."""
    return folder / ".installed"


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _install(client: Client, base: Path, folder: Path) -> None:
    """Packages without a wheel are built with the tools of the environment, so that these are pinned, too."""
    shutil.rmtree(folder, ignore_errors=True)  # an interrupted installation
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes"]
    with Path(f"{folder}.log").open("w") as log:
        for command in (
            [str(base), "-m", "venv", str(folder)],
            [*pip, "--requirement", str(BUILD)],
            [*pip, "--no-build-isolation", "--requirement", str(client.requirements)],
        ):
            done = subprocess.run(command, stdout=log, stderr=log, check=False, timeout=LONGEST_INSTALL)
            if done.returncode:
                raise InstallFailed(f"{' '.join(command)} failed with code {done.returncode}; see {log.name}")
