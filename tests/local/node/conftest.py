"""A scene for each test: a namespace, a node on its own folder, and nothing that outlives the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.admin import Admin
from testbed.certificate import Authority, Pair
from testbed.plane import ControlPlane
from tests.local.node.life import Scene


@pytest.fixture(scope="session")
def node_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The certificate of the nodes' log endpoint."""
    return Authority(tmp_path_factory.mktemp("node")).server()


@pytest.fixture
def scene(plane: ControlPlane, admin: Admin, namespace: str, tmp_path: Path, node_pair: Pair) -> Iterator[Scene]:
    scene = Scene(plane, admin, namespace, tmp_path, node_pair)
    yield scene
    scene.sweep()
