from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.installation import Installation, installation
from tests.local.conftest import start, state, up

__all__ = ["start", "state", "up"]


@pytest.fixture(scope="module")
def installed(binaries: Path) -> Iterator[Installation]:
    with installation(binaries) as installed:
        yield installed
