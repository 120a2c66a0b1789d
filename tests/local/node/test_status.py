"""A pod's status in the words of a kubelet, by tables."""

from typing import Any

import pytest

from tests.local.node.build import NOW, a_container, a_pod, ended, over, records, running
from trainmaster.local.node.decision import Decision, PodFailure
from trainmaster.local.node.pod import Pod, moment_of
from trainmaster.local.node.record import Record, Waiting
from trainmaster.local.node.status import status_of

Object = dict[str, Any]
NEW = Record("main")
TWO = (a_container("x"), a_container("y"))
INIT = [a_container("i")]
OVER = Decision(is_over=True)
DELETED = {"deletionTimestamp": "x"}


def status(pod: Pod, *found: Record, decision: Decision | None = None) -> Object:
    return status_of(pod, records(*found), decision or Decision(), NOW)


def test_the_address_of_the_pod_is_reported() -> None:
    found = status_of(a_pod(), records(running()), Decision(), NOW, address="127.64.0.1")

    assert (found["podIP"], found["podIPs"]) == ("127.64.0.1", [{"ip": "127.64.0.1"}])
    assert (found["hostIP"], found["hostIPs"]) == ("127.0.0.1", [{"ip": "127.0.0.1"}])


def conditions(found: Object) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each.get("reason", "")) for each in found["conditions"]}


@pytest.mark.parametrize(
    ("pod", "found", "decision", "phase"),
    [
        (a_pod(), [NEW], Decision(), "Pending"),
        (a_pod(), [running()], Decision(), "Running"),
        (a_pod(*TWO), [running("x"), Record("y")], Decision(), "Pending"),
        (a_pod(*TWO), [over("x"), running("y")], Decision(), "Running"),
        (a_pod(restartPolicy="Always"), [over(code=1)], Decision(), "Running"),
        (a_pod(), [over()], OVER, "Succeeded"),
        (a_pod(), [over(code=1)], OVER, "Failed"),
        (a_pod(*TWO), [over("x"), over("y", 1)], OVER, "Failed"),
        (a_pod(initContainers=INIT), [running("i"), NEW], Decision(), "Pending"),
        (a_pod(initContainers=INIT), [over("i"), running()], Decision(), "Running"),
        (a_pod(initContainers=INIT), [over("i", 1), NEW], OVER, "Failed"),
        (a_pod(metadata=DELETED), [running()], Decision(stop=("main",)), "Running"),
        (a_pod(metadata=DELETED), [over(code=143)], OVER, "Failed"),
        (a_pod(metadata=DELETED), [over()], OVER, "Succeeded"),
        (a_pod(metadata=DELETED), [NEW], OVER, "Pending"),
        (a_pod(status={"phase": "Failed"}), [running()], Decision(), "Failed"),
    ],
)
def test_phase(pod: Pod, found: list[Record], decision: Decision, phase: str) -> None:
    assert status(pod, *found, decision=decision)["phase"] == phase


@pytest.mark.parametrize(
    ("record", "decision", "state"),
    [
        (NEW, Decision(), {"waiting": {"reason": "ContainerCreating"}}),
        (running(), Decision(), {"running": {"startedAt": moment_of(NOW - 5)}}),
        (
            Record("main", waiting=Waiting("CreateContainerConfigError", "why")),
            Decision(),
            {"waiting": {"reason": "CreateContainerConfigError", "message": "why"}},
        ),
        (
            over(code=1, attempt=3),
            Decision(back_off={"main": 160.0}),
            {
                "waiting": {
                    "reason": "CrashLoopBackOff",
                    "message": "back-off 2m40s restarting failed container=main pod=pod_ns(uid-1)",
                }
            },
        ),
        (
            over(code=3),
            OVER,
            {
                "terminated": {
                    "exitCode": 3,
                    "reason": "Error",
                    "startedAt": moment_of(NOW - 1),
                    "finishedAt": moment_of(NOW),
                }
            },
        ),
    ],
)
def test_container_state(record: Record, decision: Decision, state: Object) -> None:
    assert status(a_pod(), record, decision=decision)["containerStatuses"][0]["state"] == state


def test_terminated_state_has_the_message() -> None:
    record = Record("main", 0, "x", ended=ended(137, reason="OOMKilled", message="too much"))

    state = status(a_pod(), record, decision=OVER)["containerStatuses"][0]["state"]["terminated"]

    assert (state["exitCode"], state["reason"], state["message"]) == (137, "OOMKilled", "too much")


@pytest.mark.parametrize(
    ("record", "decision", "restarts", "last"),
    [
        (running(), Decision(), 0, None),
        (running(attempt=2, previous=ended(4)), Decision(), 2, 4),
        (over(code=5, attempt=1), Decision(back_off={"main": 10.0}), 1, 5),
        (Record("main", 1, "x", ended=ended(6), previous=ended(7)), OVER, 1, 7),
        (NEW, Decision(), 0, None),
    ],
)
def test_restarts_and_the_end_before(record: Record, decision: Decision, restarts: int, last: int | None) -> None:
    found = status(a_pod(), record, decision=decision)["containerStatuses"][0]

    assert found["restartCount"] == restarts
    assert found["lastState"].get("terminated", {}).get("exitCode") == last


@pytest.mark.parametrize(
    ("pod", "found", "decision", "expected"),
    [
        (
            a_pod(),
            [running()],
            Decision(),
            {"Initialized": ("True", ""), "Ready": ("True", ""), "ContainersReady": ("True", "")},
        ),
        (
            a_pod(),
            [running(ready=False)],
            Decision(),
            {"Ready": ("False", "ContainersNotReady"), "ContainersReady": ("False", "ContainersNotReady")},
        ),
        (
            a_pod(initContainers=INIT),
            [running("i"), NEW],
            Decision(),
            {"Initialized": ("False", "ContainersNotInitialized"), "Ready": ("False", "ContainersNotReady")},
        ),
        (a_pod(), [over()], OVER, {"Initialized": ("True", "PodCompleted"), "Ready": ("False", "PodCompleted")}),
        (a_pod(), [over(code=1)], OVER, {"Initialized": ("True", ""), "Ready": ("False", "PodFailed")}),
    ],
)
def test_conditions(pod: Pod, found: list[Record], decision: Decision, expected: Object) -> None:
    assert conditions(status(pod, *found, decision=decision)).items() >= expected.items()


def test_unready_containers_are_named() -> None:
    found = status(a_pod(*TWO), running("x", ready=False), Record("y"))

    ready = next(each for each in found["conditions"] if each["type"] == "Ready")
    assert ready["message"] == "containers with unready status: [x y]"


def test_condition_keeps_its_time_until_it_changes() -> None:
    first = status(a_pod(), running(ready=False))
    later = status_of(a_pod(status=first), records(running(ready=False)), Decision(), NOW + 50)
    ready = status_of(a_pod(status=later), records(running()), Decision(), NOW + 90)

    assert later == first
    times = {each["type"]: each["lastTransitionTime"] for each in ready["conditions"]}
    assert (times["Initialized"], times["Ready"]) == (moment_of(NOW), moment_of(NOW + 90))


def test_fields_of_other_writers_are_kept() -> None:
    foreign = {"type": "example.org/gate", "status": "True"}
    old = {"phase": "Pending", "qosClass": "Guaranteed", "conditions": [foreign]}

    found = status(a_pod(status=old), running())

    assert found["qosClass"] == "Guaranteed"
    assert foreign in found["conditions"]


def test_failure_is_reported_when_no_container_runs() -> None:
    failure = PodFailure("DeadlineExceeded", "too long")

    still = status(a_pod(), running(), decision=Decision(stop=("main",), failure=failure))
    gone = status(a_pod(), over(code=143), decision=Decision(failure=failure, is_over=True))

    assert ("reason" in still, still["phase"]) == (False, "Running")
    assert (gone["phase"], gone["reason"], gone["message"]) == ("Failed", "DeadlineExceeded", "too long")


def test_failed_pod_keeps_reason_and_message() -> None:
    no_command = {"name": "main", "image": "img"}
    failure = Decision(failure=PodFailure("NoCommand", "why"), is_over=True)
    failed = status(a_pod(no_command), NEW, decision=failure)

    again = status_of(a_pod(no_command, status=failed), records(NEW), OVER, NOW + 60)

    assert again == failed
    assert failed["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "CreateContainerConfigError", "message": "why"}
    }


def test_init_container_that_succeeded_is_ready() -> None:
    found = status(a_pod(initContainers=INIT), over("i"), running())

    assert [each["ready"] for each in found["initContainerStatuses"]] == [True]
    assert found["startTime"] == moment_of(NOW)
