"""Attacks by a pod that has no rights and can open a TCP connection: jobs of others run to their end meanwhile."""

import pytest

from testbed.admin import Admin
from tests.hostile.attack import BY_ANYBODY
from tests.hostile.honest import run_job
from tests.hostile.installation import Installation
from tests.matrix.kinds import AITJ


@pytest.mark.parametrize("attack", BY_ANYBODY)
async def test_jobs_of_others_run_to_their_end_during(attack: str, installed: Installation) -> None:
    installed.assert_unharmed()
    async with Admin.of(installed.plane) as admin:
        await installed.during(BY_ANYBODY[attack](installed.target), run_job(admin, f"honest-{attack}", AITJ))

    installed.assert_unharmed()
