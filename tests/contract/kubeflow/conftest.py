"""Clients that were written for the ancestors, against our operator on a real API server."""

from tests.integration.conftest import operator, plane, scene, world

__all__ = ["operator", "plane", "scene", "world"]
