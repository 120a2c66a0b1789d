"""The programs of examples/frameworks without their frameworks; tests/contract/framework has them with theirs."""

import subprocess
import sys

import numpy as np
import pytest

from examples.frameworks.data import TRAINING
from testbed.operator import REPOSITORY

WITHOUT = "import runpy, sys; sys.modules[sys.argv[1]] = None; runpy.run_module(sys.argv[2], run_name='__main__')"
"""Runs a program as if a module were not installed."""


@pytest.mark.parametrize(
    ("program", "module", "package"),
    [
        ("torch_ddp", "torch", "torch"),
        ("torch_ddp", "numpy", "numpy"),
        ("torch_elastic", "torch", "torch"),
        ("tensorflow_mirrored", "tensorflow", "tensorflow-cpu"),
        ("paddle_mnist", "paddle", "paddlepaddle"),
    ],
)
def test_a_program_says_which_package_to_install(program: str, module: str, package: str) -> None:
    command = [sys.executable, "-c", WITHOUT, module, f"examples.frameworks.{program}"]

    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)

    assert run.returncode == 1
    assert run.stderr == (
        f"this example needs {package}, and {sys.executable} does not have it: pip install {package}\n"
    )


@pytest.mark.parametrize(
    ("program", "module", "package"),
    [
        ("cartpole.coordinator", "gymnasium", "gymnasium"),
        ("digits.trainer", "sklearn", "scikit-learn"),
        ("elastic.server", "numpy", "numpy"),
        ("ps", "numpy", "numpy"),
        ("tasks.learner", "numpy", "numpy"),
    ],
)
def test_a_program_says_how_to_install_the_packages_of_all_examples(program: str, module: str, package: str) -> None:
    command = [sys.executable, "-c", WITHOUT, module, f"examples.{program}"]

    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)

    assert run.returncode == 1
    assert run.stderr == (
        f"this example needs {package}, and {sys.executable} does not have it: pip install '.[examples]'\n"
    )


def test_the_processes_together_learn_from_every_image_once() -> None:
    shares = [TRAINING.share(rank, 3) for rank in range(3)]

    learnt = np.concatenate([share.pixels for share in shares])
    assert len(learnt) == len(TRAINING.pixels)
    assert np.array_equal(np.sort(learnt, axis=0), np.sort(TRAINING.pixels, axis=0))
