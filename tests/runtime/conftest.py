"""Log lines are kept for the test to read instead of being printed."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    with structlog.testing.capture_logs() as lines:
        yield lines
