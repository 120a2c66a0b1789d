"""A clock that the test sets, and TLS clients that tell what they were served."""

import pytest

from tests.webhook.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
