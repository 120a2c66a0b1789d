"""A di-server with one running job and its coordinator."""

from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from tests.server.di.bench import Bench, serving
from tests.server.di.client import Client


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as bench:
        bench.job()
        yield bench


@pytest.fixture
async def client(bench: Bench) -> Client:
    """The job's coordinator."""
    return bench.client(bench.pod("cart-coordinator"))
