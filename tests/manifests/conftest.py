"""The test bed with our definitions served on it."""

import pytest

from testbed.plane import ControlPlane
from trainmaster.kinds import crd


@pytest.fixture(scope="session")
def served(plane: ControlPlane) -> ControlPlane:
    """The control plane, once it knows our kinds."""
    plane.apply(crd.to_yaml())
    return plane
