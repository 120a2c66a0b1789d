"""Which failure a job is said to have failed of, and the sentence about it."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.build import NOW, an_aitj, pod_json, view_of_pod
from trainmaster.core.slot import Slot, slot_of
from trainmaster.core.view import PodView
from trainmaster.lifecycle import failure, fault, node
from trainmaster.lifecycle.completion import FAILED
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.fault import Fault
from trainmaster.lifecycle.node import NodeProblem
from trainmaster.lifecycle.restart import FailedPod
from trainmaster.lifecycle.training import Training

JOB = an_aitj(trainer=4)
SLOTS = [slot_of("mnist", "trainer", index) for index in range(4)]


def pod(index: int, code: int = 1, *, second: int | None = 0, version: int = 1, **ended: Any) -> PodView:
    body = pod_json(JOB, "trainer", index, exit_code=code, node="n1")
    body["metadata"]["resourceVersion"] = str(version)
    body["spec"]["containers"] = [{"name": "aitj-main", "resources": {"limits": {"memory": "200Mi"}}}]
    if second is not None:
        ended["finishedAt"] = f"2026-11-15T12:00:{second:02}Z"
    body["status"]["containerStatuses"][0]["state"]["terminated"] |= ended
    return view_of_pod(body)


def failed(pod: PodView) -> FailedPod:
    index = int(pod.key.name.rpartition("-")[2])
    return FailedPod("trainer", index, fault.failure(pod, Training()))


def first_of(*pods: PodView) -> Failure:
    found = failure.of_job("mnist", [failed(each) for each in pods], SLOTS, NOW)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("pods", "replica"),
    [
        pytest.param([pod(0, second=7), pod(1, second=5), pod(2, second=6)], "trainer-1", id="by time"),
        pytest.param([pod(0, second=None), pod(1, second=5)], "trainer-1", id="without a time"),
        pytest.param([pod(0, 143, version=1), pod(1, 1, version=2)], "trainer-1", id="ended by another process"),
        pytest.param(
            [pod(0, 1, version=2), pod(1, 137, reason="OOMKilled", version=1)], "trainer-1", id="ended by the kernel"
        ),
        pytest.param([pod(0, 1, version=3), pod(1, 139, version=2)], "trainer-1", id="reported first"),
    ],
)
def test_the_container_that_ended_first_is_the_failure_of_the_job(pods: list[PodView], replica: str) -> None:
    found = first_of(*pods)

    assert (found.replica, found.pod, found.others) == (replica, f"mnist-{replica}", len(pods) - 1)


def test_a_failure_has_all_that_is_known_of_the_container() -> None:
    assert first_of(pod(2, 139, second=5, message="step 1\nSegmentation fault\n")) == Failure(
        replica="trainer-2",
        role="trainer",
        pod="mnist-trainer-2",
        container="aitj-main",
        node="n1",
        exit_code=139,
        signal="SIGSEGV",
        reason="Error",
        time=pod(2, second=5).containers[0].finished,
        output=("step 1", "Segmentation fault"),
    )


def test_of_pods_that_failed_with_their_node_the_first_replica_is_named_whatever_changed_last() -> None:
    lost = [pod(0, version=3), pod(1, version=2)]
    faults = [node.fault_of(each, NodeProblem("NodeOutOfService", "n1 is off")) for each in lost]
    found = failure.of_job("mnist", [FailedPod("trainer", i, each) for i, each in enumerate(faults)], SLOTS, NOW)

    assert found is not None
    assert found.replica == "trainer-0"


PLACE = "trainer-2 (pod mnist-trainer-2, node n1)"
NOT_FOUND = 'exec: "trian": executable file not found in $PATH'


@pytest.mark.parametrize(
    ("code", "ended", "sentence"),
    [
        pytest.param(3, {}, f"{PLACE} exited with code 3", id="exit code"),
        pytest.param(3, {"message": "a\nb\n"}, f"{PLACE} exited with code 3: b", id="output"),
        pytest.param(
            137,
            {"message": "allocating"},
            f"{PLACE} was killed by SIGKILL (137), mostly by the kernel's OOM killer; its last line was: allocating",
            id="killed",
        ),
        pytest.param(
            139,
            {"message": "rank 3 starts"},
            f"{PLACE} was killed by SIGSEGV (139); with PYTHONFAULTHANDLER=1 in its environment Python prints where; "
            "its last line was: rank 3 starts",
            id="crashed",
        ),
        pytest.param(143, {"message": "b"}, f"{PLACE} was killed by SIGTERM (143); its last line was: b", id="signal"),
        pytest.param(137, {}, f"{PLACE} was killed by SIGKILL (137), mostly by the kernel's OOM killer", id="silent"),
        pytest.param(
            134,
            {"message": "RuntimeError: NCCL error"},
            f"{PLACE} was killed by SIGABRT (134): RuntimeError: NCCL error",
            id="signal after an exception",
        ),
        pytest.param(
            137,
            {"reason": "OOMKilled", "message": "b"},
            f"{PLACE} ran out of memory (OOMKilled, exit code 137) at its limit of 200Mi",
            id="memory",
        ),
        pytest.param(
            128,
            {"reason": "StartError", "message": NOT_FOUND},
            f"{PLACE} could not start (StartError): {NOT_FOUND}",
            id="wrong command",
        ),
    ],
)
def test_a_failure_is_one_sentence(code: int, ended: Mapping[str, Any], sentence: str) -> None:
    assert first_of(pod(2, code, **ended)).describe() == sentence


@pytest.mark.parametrize(
    ("code", "ended", "end"),
    [
        (139, {"message": "a\nb\n"}, "exited with reason Error exitcode 139 (SIGSEGV): b"),
        (137, {"reason": "OOMKilled", "message": "b"}, "reason OOMKilled exitcode 137 at its memory limit of 200Mi"),
        (128, {"reason": "StartError", "message": NOT_FOUND}, f"reason StartError exitcode 128: {NOT_FOUND}"),
    ],
)
def test_the_words_of_the_ancestor_are_followed_by_what_it_did_not_say(
    code: int, ended: Mapping[str, Any], end: str
) -> None:
    assert failed(pod(2, code, **ended)).fault.message.endswith(end)


def test_a_pod_that_failed_without_a_container_has_the_message_of_its_fault() -> None:
    lost = FailedPod("trainer", 3, Fault(FAILED, "pod mnist-trainer-3 is lost", node="n1", reason="PodLost"))

    found = failure.of_job("mnist", [lost], SLOTS, NOW)

    assert found is not None
    assert (found.exit_code, found.reason, found.node) == (None, "PodLost", "n1")
    assert found.describe() == "trainer-3: pod mnist-trainer-3 is lost"


def test_the_message_of_a_node_is_bounded() -> None:
    found = failure.of_job("mnist", [FailedPod("trainer", 0, Fault(FAILED, "x" * 60_000))], SLOTS, NOW)

    assert found is not None
    assert len(found.message) == 1024


def test_a_replica_without_an_index_is_known_by_the_name_of_its_pod() -> None:
    slot = Slot("collector", 0, "mnist-collector-5xjnl", key="mnist-collector-5xjnl")

    found = failure.of_job("mnist", [FailedPod("collector", 0, Fault(FAILED, "oh"))], [slot], NOW)

    assert found is not None
    assert found.replica == "collector-5xjnl"


def test_a_job_without_failed_pods_has_no_failure() -> None:
    assert failure.of_job("mnist", [], SLOTS, NOW) is None
