from datetime import timedelta

import pytest

from tests.build import NOW, a_pod, an_aitj
from trainmaster.core.view import PodView
from trainmaster.lifecycle.cleanup import CleanPodPolicy, pods_to_clean, removal

JOB = an_aitj()
RUNNING = a_pod(JOB, "trainer")
PENDING = a_pod(JOB, "trainer", phase="Pending")
SUCCEEDED = a_pod(JOB, "trainer", exit_code=0)
FAILED = a_pod(JOB, "trainer", exit_code=1)
STOPPED = a_pod(JOB, "trainer", containers={"aitj-main": 3, "proxy": None})
CRASHING = a_pod(JOB, "trainer", containers={"aitj-main": "CrashLoopBackOff"})
PULLING = a_pod(JOB, "trainer", phase="Pending", containers={"aitj-main": "ImagePullBackOff"})
GOING = a_pod(JOB, "trainer", deleting=True)


@pytest.mark.parametrize(
    ("pod", "all_", "running", "none"),
    [
        pytest.param(RUNNING, True, True, False, id="running"),
        pytest.param(PENDING, True, True, False, id="pending"),
        pytest.param(PULLING, True, True, False, id="waiting for its image"),
        pytest.param(GOING, True, True, False, id="on its way out already"),
        pytest.param(SUCCEEDED, True, False, False, id="succeeded"),
        pytest.param(FAILED, True, False, False, id="failed"),
        pytest.param(STOPPED, True, False, False, id="running with a container that ended"),
        pytest.param(CRASHING, True, False, False, id="running with a container that crashes again and again"),
    ],
)
def test_what_each_policy_cleans_up(pod: PodView, all_: bool, running: bool, none: bool) -> None:
    policies: tuple[CleanPodPolicy, ...] = ("All", "Running", "None")

    assert [pods_to_clean([pod], policy) == (pod,) for policy in policies] == [all_, running, none]
    assert [bool(pods_to_clean([pod], policy)) for policy in policies] == [all_, running, none]


def test_the_order_of_the_pods_is_kept() -> None:
    pods = (SUCCEEDED, RUNNING, FAILED, PENDING)

    assert pods_to_clean(iter(pods), "All") == pods
    assert pods_to_clean(iter(pods), "Running") == (RUNNING, PENDING)


@pytest.mark.parametrize(
    ("pod", "seconds", "is_lost", "graces"),
    [
        pytest.param(RUNNING, 0, False, [None], id="it is asked nicely"),
        pytest.param(GOING, 59, False, [], id="it was asked already"),
        pytest.param(GOING, 60, False, [0], id="it had its time"),
        pytest.param(RUNNING, 0, True, [0], id="on a lost node nobody could hear it"),
        pytest.param(GOING, 0, True, [0], id="nor let it go"),
    ],
)
def test_a_pod_is_forced_when_asking_is_of_no_use(
    pod: PodView, seconds: int, is_lost: bool, graces: list[int | None]
) -> None:
    lost = frozenset({"node-1"} if is_lost else ())

    deletes = removal([pod], "it has to go", NOW + timedelta(seconds=seconds), lost)

    assert [delete.grace for delete in deletes] == graces
    assert all(delete.why.startswith("it has to go") for delete in deletes)
