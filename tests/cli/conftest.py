"""An environment in which no cluster can be found by chance, and a log that does not outlive its test."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from trainmaster.cli.log import flush_logging


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def kept_logging() -> Iterator[None]:
    """The configuration of logging is put back after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    flush_logging(timeout=60)
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
