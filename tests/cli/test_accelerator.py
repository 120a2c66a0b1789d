"""The file of --controller-config-file, as the README of the mxnet-operator prints it."""

from pathlib import Path

import pytest

from trainmaster.cli.accelerator import accelerators_in
from trainmaster.core.errors import BadConfig
from trainmaster.kinds.accelerator import Accelerator, EnvVar, HostVolume

SEED = """
accelerators:
  alpha.kubernetes.io/nvidia-gpu:
    volumes:
      - name: nvidia-libraries
        mountPath: /usr/local/nvidia/lib64 # This path is special
        hostPath: /home/kubernetes/bin/nvidia/lib
      - name: nvidia-debug-tools # optional
        mountPath: /usr/local/bin/nvidia
        hostPath: /home/kubernetes/bin/nvidia/bin
"""


def test_the_seeds_file_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(SEED + "    envVars:\n      - name: LD_LIBRARY_PATH\n        value: /usr/local/nvidia/lib64\n")

    assert accelerators_in(str(file)) == {
        "alpha.kubernetes.io/nvidia-gpu": Accelerator(
            volumes=(
                HostVolume("nvidia-libraries", "/home/kubernetes/bin/nvidia/lib", "/usr/local/nvidia/lib64"),
                HostVolume("nvidia-debug-tools", "/home/kubernetes/bin/nvidia/bin", "/usr/local/bin/nvidia"),
            ),
            env_vars=(EnvVar("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"),),
        )
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "accelerators: {}\n"])
def test_a_file_may_say_nothing(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)

    assert accelerators_in(str(file)) == {}
    assert accelerators_in("") == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("accelerators: [a]", r"config\.yaml: accelerators: Expected `object`", id="a list"),
        pytest.param(
            "accelerators: {gpu: {volumes: [{name: a}]}}",
            r"accelerators\[\.\.\.\]\.volumes\[0\]: Object missing required field `hostPath`",
            id="a volume without a path",
        ),
        pytest.param("a: [", r"cannot be read: while parsing", id="no YAML"),
        pytest.param(None, r"cannot be read: .*No such file", id="no file"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(text: str | None, says: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(BadConfig, match=says):
        accelerators_in(str(file))
