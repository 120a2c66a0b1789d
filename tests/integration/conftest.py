"""A control plane with real operators on it.

The suite has a plane of its own: its operators drive the jobs of all namespaces, also those that another suite made
for other ends.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from testbed.admin import Admin
from testbed.operator import OperatorProcess, install
from testbed.plane import ControlPlane, User
from tests.integration.scene import Chronicle, Scene, give_aggregators, give_node

TENANT = "tenant"
"""A user of the plane who may do nothing until a test says so."""


@pytest.fixture(scope="package")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, with CRDs and RBAC installed, and the controllers of batch Jobs, autoscalers and
    budgets, which every cluster has; no other controllers, no scheduler, one node."""
    with ControlPlane(binaries=binaries, users={TENANT: User(TENANT)}) as plane:
        install(plane)
        give_aggregators(plane)
        give_node(plane)
        plane.start_controller_manager(
            ("job-controller", "horizontal-pod-autoscaler-controller", "disruption-controller"),
            arguments=["--horizontal-pod-autoscaler-sync-period=1s"],
        )
        yield plane


@pytest.fixture(scope="module")
def operator(plane: ControlPlane) -> Iterator[OperatorProcess]:
    """The operator of a module. Whatever the tests did to it, it must still be there, and have met no defect."""
    with OperatorProcess(plane) as operator:
        yield operator
        assert operator.is_running()
        assert "defect in trainmaster" not in operator.log
        assert "Traceback" not in operator.log


@pytest.fixture
async def world(plane: ControlPlane) -> AsyncIterator[Chronicle]:
    async with Chronicle(plane) as world:
        yield world


@pytest.fixture
def scene(admin: Admin, world: Chronicle, namespace: str) -> Scene:
    return Scene(admin, world, namespace)


@pytest.fixture
async def elsewhere(admin: Admin, world: Chronicle, namespace: str) -> Scene:
    """Another namespace than that of the test."""
    other = f"{namespace[:30]}-elsewhere"
    await admin.create("namespaces", {"metadata": {"name": other}})
    return Scene(admin, world, other)
