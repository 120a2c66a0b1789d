"""GPUs of a machine that has two of them, as its nvidia-smi says."""

import os
from pathlib import Path

import pytest

from tests.local.cluster import client_of, create, until
from tests.local.conftest import Start, Up
from tests.local.program import job, role, script, written
from tests.local.test_run import lines_of
from tests.manifests.build import Manifest


def give_gpus(count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has so many GPUs, by an nvidia-smi in this folder."""
    folder.mkdir()
    lines = "".join(f"echo 'GPU {index}: A (UUID: GPU-{index})'\n" for index in range(count))
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{lines}")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(2, tmp_path / "bin", monkeypatch)


def training(command: list[str], count: int, gpus: int) -> Manifest:
    body = role(command, count)
    body["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return body


def gpus_taken(folder: Path) -> dict[str, str]:
    """The GPU of each job, by the names of files."""
    return dict(path.name.split("-") for path in folder.glob("*-[01]"))


@pytest.mark.usefixtures("two_gpus")
def test_each_replica_has_its_own_gpu_and_one_that_does_not_fit_waits(start: Start, tmp_path: Path) -> None:
    waits = script("until [ -e go ]; do sleep 0.05; done; echo $CUDA_VISIBLE_DEVICES")
    program = start("run", written(tmp_path, job(trainer=training(waits, 3, 1))))
    line = program.until(lambda line: " Unschedulable: " in line and "requests 1, and 0 of 2 are free" in line)
    (tmp_path / "go").touch()
    code, out, _ = program.end()
    late, first, second = sorted(
        (f"trainer-{index}" for index in range(3)), key=lambda name: f"{name} Unschedulable: " not in line
    )

    assert code == 0
    assert sorted([lines_of(out, first), lines_of(out, second)]) == [["0"], ["1"]]
    assert lines_of(out, late) in (["0"], ["1"])


@pytest.mark.usefixtures("two_gpus")
def test_a_pod_that_can_never_run_is_refused_before_the_start(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=training(script("exit"), 1, 8)))
    code, out, err = start("run", file).end()

    assert (code, out) == (2, "")
    assert "a pod requests 8 GPUs, and this machine has 2 GPUs; to run without, add: --set 'spec.replicaSpecs" in err
    option = err.rpartition("--set '")[2].rstrip("'\n")
    assert start("run", file, "--set", option).end()[0] == 0


@pytest.mark.usefixtures("two_gpus")
async def test_after_a_kill_of_the_cluster_no_gpu_is_given_twice(up: Up, state: Path, tmp_path: Path) -> None:
    stays = script('touch "$TRAININGJOB_NAME-$CUDA_VISIBLE_DEVICES"; exec sleep 600')
    for name in ("one", "two"):
        program = up()
        async with client_of(state) as cluster:
            await create(cluster, job(name, trainer=training(stays, 1, 1)))
            await until(lambda: name in gpus_taken(tmp_path))  # noqa: B023  it is called at once
        program.kill()

    assert sorted(gpus_taken(tmp_path).values()) == ["0", "1"]
