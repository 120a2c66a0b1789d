"""A di-server with one running job and its coordinator."""

from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from tests.diserver.bench import Bench, serving
from tests.diserver.client import Client
from trainmaster.diserver import serve


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture(autouse=True)
def short_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a test waits for no client that was refused in the middle of its request."""
    monkeypatch.setattr(serve, "REQUEST_TIMEOUT", 0.2)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as bench:
        bench.job()
        yield bench


@pytest.fixture
async def client(bench: Bench) -> Client:
    """The job's coordinator."""
    return bench.client(bench.pod("cart-coordinator"))
