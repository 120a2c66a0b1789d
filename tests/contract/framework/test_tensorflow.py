"""TensorFlow: MultiWorkerMirroredStrategy."""

from pathlib import Path

import pytest

from tests.contract.framework.example import assert_trains, prepare, python_with
from tests.local.conftest import Start

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(python_with("tensorflow", "TRAINMASTER_TENSORFLOW_PYTHON"), tmp_path, monkeypatch)


def test_two_processes_train_one_network(start: Start, tmp_path: Path) -> None:
    assert_trains(start, tmp_path, "tensorflow", 2)
