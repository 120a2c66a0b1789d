"""A control plane of its own: these tests replace the definitions, which all jobs of a plane share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from testbed.admin import Admin
from testbed.operator import install
from testbed.plane import ControlPlane
from tests.integration.scene import Chronicle, Scene, give_aggregators, give_node


@pytest.fixture(scope="package")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver with CRDs, RBAC and one node, and the controller of batch Jobs."""
    with ControlPlane(binaries=binaries) as plane:
        install(plane)
        give_aggregators(plane)
        give_node(plane)
        plane.start_controller_manager(("job-controller",))
        yield plane


@pytest.fixture
async def world(plane: ControlPlane) -> AsyncIterator[Chronicle]:
    async with Chronicle(plane) as world:
        yield world


@pytest.fixture
def scene(admin: Admin, world: Chronicle, namespace: str) -> Scene:
    return Scene(admin, world, namespace)
