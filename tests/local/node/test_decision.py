"""What is done next with a pod, by tables."""

import math
from typing import Any

import pytest

from tests.local.node.build import NOW, a_container, a_pod, over, records, running
from trainmaster.local.node.backoff import RestartBackoff, streak_after
from trainmaster.local.node.decision import Decision, PodFailure, decide
from trainmaster.local.node.pod import Pod, moment_of
from trainmaster.local.node.record import Record, Waiting

NEW = Record("main")
TWO = (a_container("x"), a_container("y"))


def decided(pod: Pod, *found: Record, **fields: Any) -> Decision:
    return decide(pod, records(*found), NOW, RestartBackoff(10.0), **fields)


@pytest.mark.parametrize(
    ("pod", "found", "start", "stop", "is_over"),
    [
        pytest.param(a_pod(), [NEW], ("main",), (), False, id="a new pod is started"),
        pytest.param(a_pod(), [running()], (), (), False, id="a running one is left alone"),
        pytest.param(a_pod(*TWO), [Record("x"), Record("y")], ("x", "y"), (), False, id="all containers at once"),
        pytest.param(
            a_pod(*TWO, restartPolicy="Never"), [over("x"), running("y")], (), (), False, id="one of two has ended"
        ),
        pytest.param(a_pod(restartPolicy="Never"), [over(code=1)], (), (), True, id="never again"),
        pytest.param(a_pod(restartPolicy="OnFailure"), [over(code=0)], (), (), True, id="no failure, no restart"),
        pytest.param(a_pod(restartPolicy="OnFailure"), [over(code=1)], ("main",), (), False, id="failure: at once"),
        pytest.param(a_pod(restartPolicy="Always"), [over(code=0)], ("main",), (), False, id="always again"),
        pytest.param(
            a_pod(metadata={"deletionTimestamp": "x"}), [running()], (), ("main",), False, id="deleted: it is stopped"
        ),
        pytest.param(a_pod(metadata={"deletionTimestamp": "x"}), [NEW], (), (), True, id="deleted: never started"),
        pytest.param(
            a_pod(metadata={"deletionTimestamp": "x"}, restartPolicy="Always"), [over(code=1)], (), (), True,
            id="deleted: no restart",
        ),
        pytest.param(a_pod(status={"phase": "Failed"}), [NEW], (), (), True, id="ended pods stay ended"),
        pytest.param(a_pod(status={"phase": "Failed"}), [running()], (), ("main",), False, id="and nothing of it runs"),
        pytest.param(
            a_pod(activeDeadlineSeconds=10, status={"startTime": moment_of(NOW - 10)}),
            [running()], (), ("main",), False, id="its time is over",
        ),
    ],
)  # fmt: skip
def test_next_step(pod: Pod, found: list[Record], start: tuple[str, ...], stop: tuple[str, ...], is_over: bool) -> None:
    decision = decided(pod, *found)

    assert (decision.start, decision.stop, decision.is_over) == (start, stop, is_over)


INIT = a_pod(a_container(), initContainers=[a_container("i"), a_container("j")], restartPolicy="Never")
RETRYING = a_pod(a_container(), initContainers=[a_container("i")], restartPolicy="OnFailure")
SIDE = a_pod(a_container(), initContainers=[a_container("s", restartPolicy="Always")], restartPolicy="Never")


@pytest.mark.parametrize(
    ("pod", "found", "start", "stop", "is_over"),
    [
        pytest.param(INIT, [Record("i"), Record("j"), NEW], ("i",), (), False, id="the first first"),
        pytest.param(INIT, [running("i"), Record("j"), NEW], (), (), False, id="nothing beside it"),
        pytest.param(INIT, [over("i"), Record("j"), NEW], ("j",), (), False, id="then the second"),
        pytest.param(INIT, [over("i"), over("j"), NEW], ("main",), (), False, id="then the others"),
        pytest.param(INIT, [over("i", 1), Record("j"), NEW], (), (), True, id="a failure ends the pod"),
        pytest.param(RETRYING, [over("i", 1), NEW], ("i",), (), False, id="or it is tried again"),
        pytest.param(SIDE, [Record("s"), NEW], ("s",), (), False, id="a sidecar is started first"),
        pytest.param(SIDE, [running("s", has_started=False), NEW], (), (), False, id="and waited for"),
        pytest.param(SIDE, [running("s"), NEW], ("main",), (), False, id="it runs beside the others"),
        pytest.param(SIDE, [over("s", 1), running()], ("s",), (), False, id="it is restarted whatever the policy"),
        pytest.param(SIDE, [running("s"), over()], (), ("s",), False, id="it ends with the others"),
        pytest.param(SIDE, [over("s", 143), over()], (), (), True, id="and does not come back"),
    ],
)
def test_init_containers(
    pod: Pod, found: list[Record], start: tuple[str, ...], stop: tuple[str, ...], is_over: bool
) -> None:
    decision = decided(pod, *found)

    assert (decision.start, decision.stop, decision.is_over) == (start, stop, is_over)


@pytest.mark.parametrize(
    ("streak", "ago", "start", "delay", "wake_at"),
    [
        (1, 0, ("main",), None, math.inf),
        (2, 3, (), 10, NOW + 7),
        (3, 3, (), 20, NOW + 17),
        (2, 10, ("main",), None, math.inf),
        (99, 0, (), 300, NOW + 300),
    ],
)
def test_restarts_back_off(
    streak: int, ago: float, start: tuple[str, ...], delay: float | None, wake_at: float
) -> None:
    decision = decided(a_pod(restartPolicy="Always"), over(code=1, streak=streak, ago=ago))

    assert (decision.start, decision.back_off.get("main"), decision.wake_at) == (start, delay, wake_at)


def test_container_that_cannot_be_made_is_tried_again_later() -> None:
    waiting = Record("main", waiting=Waiting("CreateContainerConfigError", "no"), retry_at=NOW + 5)

    assert decided(a_pod(), waiting) == Decision(wake_at=NOW + 5)
    assert decide(a_pod(), records(waiting), NOW + 5, RestartBackoff()).start == ("main",)


def test_deadline_wakes_the_node() -> None:
    pod = a_pod(activeDeadlineSeconds=10, status={"startTime": moment_of(NOW - 4)})

    assert decided(pod, running()).wake_at == NOW + 6


def test_unfit_pod_gets_a_verdict_and_nothing_else() -> None:
    failure = PodFailure("NoCommand", "why")

    assert decided(a_pod(), NEW, rejection=failure) == Decision(failure=failure, is_over=True)
    assert decided(a_pod(), running(), rejection=failure) == Decision(stop=("main",), failure=failure)


def test_pod_that_is_gone_from_the_api_is_stopped() -> None:
    assert decided(a_pod(), running(), is_gone=True) == Decision(stop=("main",))


@pytest.mark.parametrize(("streak", "ran", "after"), [(0, 1, 1), (3, 599, 4), (3, 600, 1)])
def test_long_run_ends_a_streak(streak: int, ran: float, after: int) -> None:
    assert streak_after(streak, ran) == after
