"""The Dockerfile, as far as it can be held to its word without a registry."""

import os
import re
import shlex
import shutil
import subprocess
import venv
from fnmatch import fnmatch
from pathlib import Path

import pytest

from testbed.operator import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"


def instructions() -> list[tuple[str, list[str]]]:
    """Each instruction with its words; comments are left out, continued lines are one."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(line.split()[0], shlex.split(line)[1:]) for line in lines]


def bases() -> list[str]:
    """The image that each stage begins with."""
    [(_, [base])] = [each for each in instructions() if each[0] == "ARG"]
    name, _, default = base.partition("=")
    return [words[0].replace(f"${name}", default) for instruction, words in instructions() if instruction == "FROM"]


def copied() -> list[str]:
    """What is copied out of the repository."""
    return [
        word for name, words in instructions() if name == "COPY" and "--from" not in words[0] for word in words[:-1]
    ]


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets this through: the last line that matches decides."""
    sent = True
    for line in (REPOSITORY / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and any(fnmatch(part, pattern) for part in (path, path.split("/")[0])):
            sent = line.startswith("!")
    return sent


def test_everything_that_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    assert copied()
    for path in copied():
        assert (REPOSITORY / path).exists(), path
        assert is_sent(path), path
    assert not is_sent(".git")
    assert not is_sent("tests")


def test_the_last_stage_is_slim_and_nobody_in_it_is_root() -> None:
    stages = [i for i, (name, _) in enumerate(instructions()) if name == "FROM"]
    last = instructions()[stages[-1] :]

    assert {image.rpartition("-")[2] for image in bases()} == {"slim"}
    assert not any("/" in image for image in bases())  # where it comes from is the builder's to say
    assert ("USER", ["65532:65532"]) in last
    assert last[-1] == ("ENTRYPOINT", ["[trainmaster]"])
    assert not any("install" in words and "uninstall" not in words for name, words in last if name == "RUN")


def test_the_image_has_the_python_that_the_tests_have() -> None:
    assert {image.partition(":")[2] for image in bases()} == {"3.11-slim"}
    assert 'requires-python = ">=3.11"' in (REPOSITORY / "pyproject.toml").read_text()


def test_the_base_can_be_named_by_its_digest() -> None:
    """An argument before the first stage is known to every FROM."""
    (first, _), *_ = instructions()

    assert first == "ARG"
    assert {words[0] for name, words in instructions() if name == "FROM"} == {"$BASE"}


def test_every_package_is_pinned_by_its_hash() -> None:
    development = (REPOSITORY / "requirements" / "dev.txt").read_text()
    for line in (REPOSITORY / "requirements" / "build.txt").read_text().splitlines():
        assert line.startswith("#") or line.rstrip(" \\") in development, line
    installed = [words for name, words in instructions() if name == "RUN" and "-r" in words]
    assert [words[-1] for words in installed] == ["requirements/run.txt", "requirements/build.txt"]
    assert all("--require-hashes" in words for words in installed)


def build_stage() -> list[tuple[str, list[str]]]:
    """The instructions of the stage that installs everything."""
    first, second = (i for i, (name, _) in enumerate(instructions()) if name == "FROM")
    return instructions()[first + 1 : second]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        target.mkdir(exist_ok=True)
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs the build stage of the Dockerfile in an empty environment; returns what it would copy into the image."""
    folder = tmp_path_factory.mktemp("image")
    venv.create(folder / "base", with_pip=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ |= {"PATH": f"{folder / 'base' / 'bin'}:{os.defpath}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    build = folder / "build"
    build.mkdir()
    for name, words in build_stage():
        if name == "COPY":
            for path in words[:-1]:
                _copy(REPOSITORY / path, build / words[-1])
        elif name == "RUN":
            command = " ".join(words).replace("/opt/trainmaster", str(folder / "opt"))
            done = subprocess.run(["sh", "-ec", command], cwd=build, env=environ, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return folder / "opt"


@pytest.mark.long
def test_the_build_stage_of_the_image_installs_the_command_with_all_that_it_needs(installed: Path) -> None:
    def run(*words: str | Path) -> str:
        environ = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(words, env=environ, cwd=installed, capture_output=True, text=True, check=True)
        return done.stdout

    command = installed / "bin" / "trainmaster"
    found = run(installed / "bin" / "python", "-c", "import trainmaster; print(trainmaster.__file__)")

    assert Path(found.strip()).is_relative_to(installed)
    assert run(command, "crds") == (REPOSITORY / "deploy" / "crds.yaml").read_text()
    for each in ("operator", "server", "webhook"):
        assert "Usage" in run(command, each, "--help")


@pytest.mark.long
@pytest.mark.parametrize("command", ["bin/trainmaster", "bin/python -m trainmaster"])
def test_the_wheel_in_an_empty_environment_runs_a_program(command: str, installed: Path, tmp_path: Path) -> None:
    """All that `run` needs is in the wheel and its dependencies: manifests to begin with, the shim, …"""
    first, *rest = command.split()
    environ = {"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    program = ["python3", "-c", "print('it runs')"]

    def run(*words: str) -> str:
        whole: list[str | Path] = [installed / first, *rest, *words]
        done = subprocess.run(whole, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{whole}: {done.stdout}{done.stderr}"
        return done.stdout

    assert "worker-0 | it runs" in run("run", "--", *program)
    assert "kind: MXJob" in run("init", "mxjob")
