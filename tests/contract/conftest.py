"""Fixtures of contract tests that run jobs of the clients in local mode."""

from tests.local.conftest import start

__all__ = ["start"]
