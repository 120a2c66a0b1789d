"""Which of the failed replicas is the cause, and which line of its output says why."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import NOW, an_aitj, pod_json, view_of_pod
from trainmaster.core.slot import Slot
from trainmaster.lifecycle import fault
from trainmaster.lifecycle.failure import CAUSE_SECONDS, Failure, first, of_job
from trainmaster.lifecycle.restart import FailedPod
from trainmaster.lifecycle.training import Training

NAN = "ValueError: loss is NaN at step 17"
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"


def failed(replica: str, *output: str, code: int = 1, after: float | None = 0, **fields: Any) -> Failure:
    time = None if after is None else NOW + timedelta(seconds=after)
    return Failure(
        replica=replica, exit_code=code, reason=fields.pop("reason", "Error"), time=time, output=output, **fields
    )


@pytest.mark.parametrize(
    ("cause", "others"),
    [
        pytest.param(failed("a"), [failed("b", after=1)], id="the one that failed first"),
        pytest.param(failed("a"), [failed("b", after=None)], id="one without a time is not the first"),
        pytest.param(failed("a", NAN), [failed("b", RESET)], id="in the same second"),
        pytest.param(failed("a", NAN, after=2), [failed("b", RESET)], id="it closes its connections and ends later"),
        pytest.param(failed("a", RESET), [failed("b", NAN, after=60)], id="a minute later: nothing to do with it"),
        pytest.param(failed("a", RESET), [failed("b", RESET, after=1)], id="all lost a connection"),
        pytest.param(failed("a", after=1), [failed("b", code=143, signal="SIGTERM")], id="ended by another process"),
        pytest.param(
            failed("a", code=137, signal="SIGKILL", reason="OOMKilled", after=1),
            [failed("b", "RuntimeError: Connection closed by peer [10.0.0.7]:4711")],
            id="out of memory",
        ),
        pytest.param(
            failed("a", code=139, signal="SIGSEGV"),
            [failed("b", "BrokenPipeError: [Errno 32] Broken pipe")],
            id="crash",
        ),
        pytest.param(
            Failure(replica="a", message="node n1 is lost", time=NOW), [failed("b", RESET)], id="a node and a peer"
        ),
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_the_cause_is_the_first_failure_that_is_no_consequence(
    cause: Failure, others: list[Failure], is_last: bool
) -> None:
    assert first([*others, cause] if is_last else [cause, *others]) is cause


@pytest.mark.parametrize(
    ("failure", "age", "seconds"),
    [
        pytest.param(failed("a", RESET), 0, CAUSE_SECONDS, id="it was reported at once"),
        pytest.param(failed("a", RESET), 1, CAUSE_SECONDS - 1, id="it was reported late"),
        pytest.param(failed("a", RESET), CAUSE_SECONDS, 0, id="long enough"),
        pytest.param(failed("a", RESET), -1, 0, id="the clock of its node is wrong"),
        pytest.param(failed("a", RESET, after=None), 0, 0, id="without a time"),
        pytest.param(failed("a", NAN), 0, 0, id="its own failure"),
        pytest.param(failed("a", code=143, signal="SIGTERM"), 0, 0, id="ended by another process"),
    ],
)
def test_the_failure_of_a_lost_peer_is_waited_for(failure: Failure, age: float, seconds: float) -> None:
    assert failure.seconds_to_wait(NOW + timedelta(seconds=age)) == seconds


def test_nothing_has_no_cause() -> None:
    assert first([]) is None


@pytest.mark.parametrize(
    ("output", "line"),
    [
        pytest.param(["Traceback", NAN], NAN, id="the last line"),
        pytest.param([NAN, "[W1117 ProcessGroup.cpp:9] Warning: resources leak"], NAN, id="a warning comes after it"),
        pytest.param([NAN, RESET, "done"], RESET, id="the last exception"),
        pytest.param(["[rank3]: " + NAN, "bye"], "[rank3]: " + NAN, id="with its rank"),
        pytest.param(
            ["socket.gaierror: [Errno -2] Name unknown", "bye"], "socket.gaierror: [Errno -2] Name unknown", id="small"
        ),
        pytest.param(["no exception", "sh: 1: tarin: not found"], "sh: 1: tarin: not found", id="no Python"),
        pytest.param([], "", id="no output"),
    ],
)
def test_the_line_that_says_why_is_the_last_exception_or_the_last_line(output: list[str], line: str) -> None:
    assert failed("worker-0", *output).line == line


def test_an_init_container_is_named() -> None:
    pod = pod_json(an_aitj(), "trainer", phase="Failed", containers={})
    ended = {"exitCode": 4, "reason": "Error", "message": "no data"}
    pod["status"]["initContainerStatuses"] = [{"name": "fetch", "state": {"terminated": ended}}]
    broken = FailedPod("trainer", 0, fault.failure(view_of_pod(pod), Training()))
    found = of_job("mnist", [broken], [Slot("trainer", 0, "mnist-trainer-0")], NOW)

    assert found is not None
    assert found.describe() == (
        "init container fetch of trainer-0 (pod mnist-trainer-0, node node-1) exited with code 4: no data"
    )


def test_a_pod_that_its_node_ended_has_the_reason_of_the_node_and_not_the_exit_code() -> None:
    pod = view_of_pod(pod_json(an_aitj(), "trainer", exit_code=137, reason="Evicted", message="low on disk"))
    broken = FailedPod("trainer", 0, fault.failure(pod, Training()))
    found = of_job("mnist", [broken], [Slot("trainer", 0, "mnist-trainer-0")], NOW)

    assert found is not None
    assert (found.exit_code, found.reason) == (None, "Evicted")
    assert found.describe().startswith("trainer-0: pod mnist-trainer-0 failed: Evicted, low on disk (node node-1); ")
