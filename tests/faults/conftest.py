"""A proxy, the truth behind it, and lives to watch; each test starts the operators that it needs."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from testbed.admin import Admin
from testbed.operator import install
from testbed.plane import ControlPlane
from testbed.proxy import FaultProxy
from tests.conftest import namespace_name
from tests.faults.life import Life, Subject
from tests.faults.world import World

_numbers = itertools.count(1)

NewLife = Callable[[Subject], Life]


@pytest.fixture(scope="session")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """A plane of its own: operators drive the jobs of all namespaces, and other suites leave hundreds."""
    with ControlPlane(binaries=binaries) as plane:
        install(plane)
        yield plane


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[FaultProxy]:
    with FaultProxy(plane) as proxy:
        yield proxy


@pytest.fixture
async def world(plane: ControlPlane) -> AsyncIterator[World]:
    async with World(plane) as world:
        yield world


@pytest.fixture
def new_life(plane: ControlPlane, admin: Admin, world: World, request: pytest.FixtureRequest) -> NewLife:
    """Makes a life of a job in a namespace of its own."""

    def make(subject: Subject) -> Life:
        name = namespace_name(next(_numbers), f"f-{request.node.name}")
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return Life(subject, name, admin, world)

    return make
