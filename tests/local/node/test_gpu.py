"""How many GPUs there are, and which pod has which."""

from pathlib import Path
from typing import Any

import pytest

from tests.local.node.build import a_container
from trainmaster.local.gpu import find_gpus, gpus_of, share_of
from trainmaster.local.node.gpu import Gpus, NotEnoughGpus

LISTED = "GPU 0: NVIDIA A100 (UUID: GPU-1)\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\nGPU 1: NVIDIA A100 (UUID: GPU-2)\n"


def with_gpus(count: int | str, name: str = "main", *, side: str = "limits") -> dict[str, Any]:
    return a_container(name, resources={side: {"nvidia.com/gpu": count}})


def machine(folder: Path, script: str = "", *, devices: int = 0) -> dict[str, str]:
    """A PATH with nvidia-smi, if there is a script for it, and the devices."""
    if script:
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "nvidia-smi").chmod(0o755)
    for index in range(devices):
        (folder / f"nvidia{index}").touch()
    (folder / "nvidiactl").touch()
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("script", "devices", "count"),
    [
        pytest.param(f"printf '{LISTED}'", 8, 2, id="nvidia-smi"),
        pytest.param("echo cannot talk to the driver; exit 9", 3, 3, id="nvidia-smi that fails"),
        pytest.param("", 4, 4, id="devices only"),
        pytest.param("", 0, 0, id="none"),
    ],
)
def test_gpus_are_counted(tmp_path: Path, script: str, devices: int, count: int) -> None:
    environ = machine(tmp_path, script, devices=devices)

    assert find_gpus(environ, tmp_path) == tuple(map(str, range(count)))


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1,3", ("1", "3")),
        (" 3 , 0", ("3", "0")),
        ("GPU-1b2c,1", ("GPU-1b2c", "1")),
        ("", ()),
        ("-1", ()),
        ("0,4,1", ("0",)),
        ("NoDevFiles", ()),
        ("9" * 5000, ()),
    ],
)
def test_cuda_visible_devices_limits_the_gpus(tmp_path: Path, visible: str, names: tuple[str, ...]) -> None:
    environ = machine(tmp_path, devices=4) | {"CUDA_VISIBLE_DEVICES": visible}

    assert find_gpus(environ, tmp_path) == names


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        pytest.param({"containers": [a_container()]}, 0, id="none"),
        pytest.param({"containers": [with_gpus(2), with_gpus("1", "side")]}, 3, id="containers run together"),
        pytest.param({"containers": [with_gpus(1, side="requests")]}, 1, id="requests"),
        pytest.param(
            {"containers": [with_gpus(1)], "initContainers": [with_gpus(2, "a"), with_gpus(1, "b")]}, 2, id="init"
        ),
        pytest.param({"containers": [with_gpus("9" * 5000)]}, 0, id="no number of an API server"),
        pytest.param({"containers": [{"resources": "x"}, "y"], "initContainers": 3}, 0, id="no spec at all"),
    ],
)
def test_the_gpus_of_a_pod_are_counted(spec: dict[str, Any], count: int) -> None:
    assert gpus_of(spec) == count


def test_containers_share_the_gpus_of_their_pod_and_init_containers_use_them_before() -> None:
    spec = {
        "containers": [with_gpus(1, "a"), a_container("b"), with_gpus(2, "c")],
        "initContainers": [with_gpus(2, "i")],
    }

    found = {name: share_of(spec, name, ("4", "5", "6")) for name in "abci"}
    assert found == {"a": ("4",), "b": (), "c": ("5", "6"), "i": ("4", "5")}


def test_no_two_pods_have_the_same_gpu_until_one_is_released() -> None:
    gpus = Gpus(("0", "1", "2"))
    assert (gpus.take("a", 2), gpus.take("b", 1), gpus.take("a", 2)) == (("0", "1"), ("2",), ("0", "1"))
    with pytest.raises(NotEnoughGpus, match="the pod requests 1 GPUs, and 0 of 3 are free"):
        gpus.take("c", 1)
    gpus.release("a")
    assert gpus.take("c", 1) == ("0",)


def test_gpus_of_pods_from_before_are_not_given_again() -> None:
    gpus = Gpus(("0", "1"))
    gpus.keep("old", ("0",))
    assert gpus.take("new", 1) == ("1",)
