"""The patches of `trainmaster suspend` and `resume`."""

from typing import Any

import pytest

from tests.build import Json, a_dijob, a_ditask, a_nervexjob, an_aitj, an_mxjob
from tests.client.found import found
from trainmaster.client.change import CONFLICTS, retried, suspension
from trainmaster.core.errors import Conflict


@pytest.mark.parametrize(
    ("job", "spec"),
    [
        pytest.param(an_aitj(), {"suspend": True}, id="AITrainingJob"),
        pytest.param(a_dijob(), {"runPolicy": {"suspend": True}}, id="DIJob"),
        pytest.param(a_ditask(), {"runPolicy": {"suspend": True}}, id="DIJob with tasks"),
        pytest.param(a_nervexjob(), {"runPolicy": {"suspend": True}}, id="NerveXJob"),
        pytest.param(an_mxjob(), {"runPolicy": {"suspend": True}}, id="MXJob"),
    ],
)
def test_every_kind_is_suspended_by_its_own_field(job: Json, spec: dict[str, Any]) -> None:
    assert suspension(found(job), is_suspended=True) == {"spec": spec}


async def test_a_job_that_changed_before_its_patch_is_read_again_some_times() -> None:
    calls = 0

    async def change() -> str:
        nonlocal calls
        calls += 1
        if calls < conflicts:
            raise Conflict("the object has been modified")
        return "changed"

    conflicts = 3
    assert await retried(change) == "changed"
    assert calls == conflicts

    calls, conflicts = 0, 1000
    with pytest.raises(Conflict, match="modified"):
        await retried(change)
    assert calls == CONFLICTS + 1
