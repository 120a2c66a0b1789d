import pytest

from tests.build import a_pod, an_aitj
from trainmaster.core.policies.cleanup import CleanPodPolicy, pods_to_clean
from trainmaster.core.view import PodView

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
