"""A control plane with a scheduler, nodes, a real Kueue and a real operator."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from testbed.admin import Admin
from testbed.kueue import Kueue
from testbed.operator import OperatorProcess, install
from testbed.plane import CONTROLLERS, ControlPlane
from tests.integration.scene import Chronicle, Scene, give_aggregators

API = "kueue.x-k8s.io/v1beta2"
FLAVOR = "plain"
HIGH = "urgent"
"""A priority; jobs without one have 0."""


@pytest.fixture(scope="package")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    with ControlPlane(binaries=binaries) as plane:
        install(plane)
        give_aggregators(plane)
        plane.start_controller_manager((*CONTROLLERS, "job-controller"))
        plane.start_scheduler()
        plane.add_nodes(4)
        plane.start_kwok(completes_jobs=False)
        yield plane


@pytest.fixture(scope="package")
def kueue(plane: ControlPlane) -> Iterator[Kueue]:
    with Kueue(plane) as kueue:
        for body in (
            {"kind": "ResourceFlavor", "metadata": {"name": FLAVOR}},
            {"kind": "WorkloadPriorityClass", "metadata": {"name": HIGH}, "value": 100},
        ):
            plane.apply(yaml.safe_dump({"apiVersion": API} | body))
        yield kueue


@pytest.fixture(scope="package")
def operator(kueue: Kueue, plane: ControlPlane) -> Iterator[OperatorProcess]:
    with OperatorProcess(plane) as operator:
        yield operator
        assert operator.is_running()
        assert "Traceback" not in operator.log


@pytest.fixture
async def world(plane: ControlPlane) -> AsyncIterator[Chronicle]:
    async with Chronicle(plane) as world:
        yield world


@pytest.fixture
def scene(admin: Admin, world: Chronicle, namespace: str, operator: OperatorProcess) -> Scene:
    return Scene(admin, world, namespace)
