"""A user whose home and temporary files are in a folder of the test, and a log that does not outlive the test."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.local.conftest import start, state, up
from tests.local.program import containers_of
from trainmaster import Client

__all__ = ["start", "state", "up"]


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder; at the end no process of a pod runs there."""
    for name in ("HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("KUBECONFIG", "XDG_STATE_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    handlers = logging.getLogger("trainmaster").handlers[:]
    yield tmp_path
    structlog.reset_defaults()
    logging.getLogger("trainmaster").handlers[:] = handlers
    assert not containers_of(tmp_path)


@pytest.fixture
def client(user: Path) -> Iterator[Client]:
    with Client() as client:
        yield client
