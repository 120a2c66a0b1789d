from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.build import NOW, a_pod, an_aitj
from trainmaster.core.view import PodView
from trainmaster.lifecycle.creation import Times, describe, error_of, fault_of, next_look
from trainmaster.lifecycle.fault import Fault

JOB = an_aitj()
MINUTE = 60.0


def before(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def stamp(minutes: float) -> str:
    return before(minutes).isoformat()


def a_waiting_pod(*, started: float = 60, **containers: Any) -> PodView:
    """A pod that its node took so many minutes ago."""
    given = containers or {"main": "ImagePullBackOff"}
    return a_pod(JOB, "trainer", phase="Pending", node="n1", containers=given, started=stamp(started))


@pytest.mark.parametrize(
    "reason",
    [
        "CreateContainerConfigError",
        "CreateContainerError",
        "ImagePullBackOff",
        "ImageInspectError",
        "ErrImagePull",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "InvalidImageName",
    ],
)
def test_every_error_of_the_ancestors_is_one(reason: str) -> None:
    error = error_of(a_waiting_pod(main=reason))

    assert error is not None
    assert error.waiting == reason


@pytest.mark.parametrize("state", ["ContainerCreating", "PodInitializing", "CrashLoopBackOff", None, 1])
def test_a_container_that_waits_for_its_turn_runs_or_ended_has_no_error(state: str | int | None) -> None:
    assert error_of(a_waiting_pod(main=state)) is None


def test_init_containers_are_looked_at_first() -> None:
    containers = {"aitj-main": "PodInitializing"}
    pod = a_pod(
        JOB, "trainer", phase="Pending", node="n1", containers=containers, init={"a": 0, "fetch": "ErrImagePull"}
    )

    error = error_of(pod)

    assert error is not None
    assert error.name == "fetch"


def test_a_pod_that_runs_beside_a_container_that_cannot_has_an_error() -> None:
    assert error_of(a_pod(JOB, "trainer", containers={"aitj-main": None, "proxy": "CreateContainerError"}))


def test_a_pod_that_has_ended_has_none() -> None:
    assert error_of(a_pod(JOB, "trainer", phase="Failed", containers={"aitj-main": "ErrImagePull"})) is None


def test_the_message_names_pod_container_image_and_what_to_do() -> None:
    pod = a_waiting_pod(main="ErrImagePull: rpc error: no such host")
    error = error_of(pod)
    assert error is not None

    assert describe(pod, error) == (
        "pod mnist-trainer-0 create container failed[ErrImagePull]: container main of image registry.example/train:1 "
        "says: rpc error: no such host; check that the image exists, and that imagePullSecrets let it be pulled"
    )
    assert "create container failed[ErrImagePull] and has been retrying for 900 seconds: " in describe(
        pod, error, 900.0
    )


def judged(pod: PodView, since: float, times: Times) -> Fault | None:
    error = error_of(pod)
    assert error is not None
    return fault_of(pod, error, before(since), times, NOW)


DEFAULT = Times(duration=15 * MINUTE, restart=0, can_fail=True)
RESTARTS = Times(duration=15 * MINUTE, restart=60 * MINUTE, can_fail=True)


@pytest.mark.parametrize(
    ("times", "since", "started", "becomes"),
    [
        pytest.param(DEFAULT, 0, 0, None, id="the first error ends nothing"),
        pytest.param(DEFAULT, 14.9, 14.9, None, id="it may try for 15 minutes"),
        pytest.param(DEFAULT, 15, 15, False, id="then it has failed"),
        pytest.param(DEFAULT, 1, 300, None, id="a long init container is no error"),
        pytest.param(RESTARTS, 14, 14, None, id="a pod tries before it is replaced"),
        pytest.param(RESTARTS, 15, 20, True, id="another one comes"),
        pytest.param(RESTARTS, 45, 10, None, id="the next one tries, too"),
        pytest.param(RESTARTS, 59, 15, True, id="within the restart period"),
        pytest.param(RESTARTS, 60, 10, None, id="the last one tries as long as the others"),
        pytest.param(RESTARTS, 60, 15, False, id="the restart period is over"),
        pytest.param(Times(15 * MINUTE, 0, can_fail=False), 600, 600, None, id="it never fails"),
        pytest.param(Times(15 * MINUTE, 60 * MINUTE, can_fail=False), 30, 30, True, id="but it comes again"),
        pytest.param(Times(0, 0, can_fail=True), 0, 0, False, id="no time at all, as the ancestors had it"),
    ],
)
def test_a_pod_tries_then_it_is_replaced_then_it_has_failed(
    times: Times, since: float, started: float, becomes: bool | None
) -> None:
    """``becomes`` is whether it comes again; None while it goes on trying."""
    fault = judged(a_waiting_pod(started=started), since, times)

    assert (fault.comes_again if fault else None) == becomes


def test_a_fault_of_creation_is_none_of_the_program_or_the_node() -> None:
    fault = judged(a_waiting_pod(main="InvalidImageName"), 15, DEFAULT)

    assert fault is not None
    assert (fault.phase, fault.reason, fault.node) == ("Failed", "InvalidImageName", "n1")
    assert (fault.is_node, fault.has_failed, fault.exits) == (False, False, ())


@pytest.mark.parametrize(
    ("times", "since", "started", "minutes"),
    [(DEFAULT, 5, 5, 10), (DEFAULT, 20, 5, 10), (DEFAULT, 15, 15, None), (RESTARTS, 50, 10, 5), (RESTARTS, 50, 15, 10)],
)
def test_somebody_looks_again_in_time(times: Times, since: float, started: float, minutes: float | None) -> None:
    look = next_look(a_waiting_pod(started=started), before(since), times, NOW)

    assert look == (minutes * MINUTE if minutes else None)
