from typing import Any

import pytest

from tests.build import Json, an_aitj, pod_json, view_of_pod
from trainmaster.lifecycle.fault import SIGNALS, Fault, failure
from trainmaster.lifecycle.training import Training

JOB = an_aitj()


def fault_of(**fields: Any) -> Fault:
    return failure(view_of_pod(pod_json(JOB, "trainer", **fields)), Training("aitj-*"))


def test_a_fault_tells_what_ended_where_and_why() -> None:
    fault = fault_of(phase="Failed", containers={"aitj-a": 137, "aitj-b": 2, "aitj-c": 0, "proxy": 3}, node="n1")

    assert (fault.phase, fault.node, fault.exits, fault.has_failed, fault.is_node) == (
        "Failed",
        "n1",
        (137, 2),
        True,
        False,
    )
    assert fault.message == (
        "pod mnist-trainer-0 failed: container aitj-a on node n1 exited with reason Error exitcode 137 (SIGKILL); "
        "container aitj-b on node n1 exited with reason Error exitcode 2"
    )


@pytest.mark.parametrize(
    ("code", "signal"), [(137, "SIGKILL"), (143, "SIGTERM"), (139, "SIGSEGV"), (1, ""), (128, ""), (255, "")]
)
def test_an_exit_code_above_128_is_a_signal(code: int, signal: str) -> None:
    assert fault_of(exit_code=code).signal == signal


def test_signals_have_the_numbers_of_linux() -> None:
    assert (SIGNALS["SIGHUP"], SIGNALS["SIGKILL"], SIGNALS["SIGUSR1"], SIGNALS["SIGSYS"]) == (1, 9, 10, 31)


@pytest.mark.parametrize(
    ("reason", "is_node"),
    [
        ("Evicted", True),
        ("OutOfnvidia.com/gpu", True),
        ("NodeShutdown", True),
        ("UnexpectedAdmissionError", True),
        ("", False),
        ("Deadline", False),
    ],
)
def test_a_pod_that_its_node_ended_has_a_fault_of_its_node(reason: str, is_node: bool) -> None:
    assert fault_of(phase="Failed", containers={}, reason=reason).is_node == is_node


def test_a_pod_without_containers_tells_its_own_reason() -> None:
    fault = fault_of(phase="Failed", containers={}, reason="Evicted", message="low on memory")

    assert (fault.exit_code, fault.signal, fault.reason) == (None, "", "Evicted")
    assert fault.message == "pod mnist-trainer-0 failed: Evicted, low on memory (node node-1)"


def test_the_last_line_of_the_termination_message_is_told() -> None:
    pod: Json = pod_json(JOB, "trainer", exit_code=1)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    ended |= {"reason": "OOMKilled", "message": "step 1\nstep 2\ncannot allocate " + "x" * 300 + "\n"}

    fault = failure(view_of_pod(pod), Training())

    assert (fault.reason, len(fault.line), fault.line[-1]) == ("OOMKilled", 200, "x")


def test_an_init_container_that_failed_is_told_of_and_its_code_counts_for_nothing() -> None:
    fault = fault_of(phase="Failed", containers={"aitj-main": "PodInitializing"}, init={"fetch": 3}, node="n1")

    assert fault.message == (
        "pod mnist-trainer-0 failed: container fetch on node n1 exited with reason Error exitcode 3"
    )
    assert fault.exits == ()


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
@pytest.mark.parametrize("where", ["containers", "init"])
def test_a_container_that_cannot_be_started_does_not_come_again(reason: str, where: str) -> None:
    """128 is what a container runtime reports then; no signal has that number."""
    fault = fault_of(phase="Failed", **{"containers": {}, where: {"aitj-main": (128, reason)}})

    assert fault.comes_again is False


def test_the_start_error_of_a_side_car_decides_nothing() -> None:
    assert fault_of(phase="Failed", containers={"aitj-a": 1, "proxy": (128, "StartError")}).comes_again is None
