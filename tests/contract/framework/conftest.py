"""Fixtures of tests that run frameworks in local mode."""

from tests.local.conftest import start, state, up

__all__ = ["start", "state", "up"]
