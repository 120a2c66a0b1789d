"""What every history is told in: without a log, of which there would be millions of lines, and where ports are few."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from trainmaster.lifecycle import port


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for all jobs at once, and so few that jobs meet; all begin to look at the same place."""
    monkeypatch.setattr(port, "LAST", port.FIRST + 15)
    monkeypatch.setattr(port, "crc32", lambda uid: 0)
