import itertools

import pytest

from tests.build import a_dijob, a_pod, a_service, an_aitj, child_labels
from trainmaster.core.observed import Observed, SlotLabels
from trainmaster.core.view import PodView

JOB = an_aitj(trainer=3, ps=2)
SLOTS = SlotLabels(role="TrainingJobReplicaName", index="TrainingJobReplicaIndex")


def seen(*pods: PodView) -> Observed:
    return Observed.of(pods, (), SLOTS)


def test_pods_stand_in_the_slots_that_their_labels_name() -> None:
    first, third, ps = a_pod(JOB, "trainer", 0), a_pod(JOB, "trainer", 2), a_pod(JOB, "ps", 1)

    found = seen(third, ps, first)

    assert found.pods == {"trainer": {0: first, 2: third}, "ps": {1: ps}}
    assert found.strays == ()


def test_services_are_found_by_name() -> None:
    service = a_service(JOB, "ps", 1)

    assert Observed.of((), (service,), SLOTS).services == {"mnist-ps-1": service}


def test_the_ports_that_are_taken_come_along_as_they_are() -> None:
    assert Observed.of((), (), SLOTS, frozenset({20001})).taken == {20001}
    assert seen().taken == frozenset()


def test_a_role_without_pods_is_empty() -> None:
    pod = a_pod(JOB, "trainer", 0)

    assert seen(pod).role("trainer") == {0: pod}
    assert seen(pod).role("ps") == {}


@pytest.mark.parametrize(
    "index",
    [
        pytest.param("", id="empty"),
        pytest.param("-1", id="negative"),
        pytest.param("+1", id="signed"),
        pytest.param("1.0", id="a fraction"),
        pytest.param("one", id="a word"),
        pytest.param(" 1", id="a blank"),
        pytest.param("1_0", id="an underscore, which int takes"),
        pytest.param("٣", id="an arabic digit, which int takes"),
        pytest.param("²", id="a superscript"),
        pytest.param("1234567890", id="ten digits"),
        pytest.param("9" * 5000, id="more digits than int takes"),
    ],
)
def test_a_pod_whose_index_is_no_number_is_a_stray(index: str) -> None:
    pod = a_pod(JOB, "trainer", 0, labels=child_labels(JOB, "trainer") | {"TrainingJobReplicaIndex": index})

    found = seen(pod)

    assert found.strays == (pod,)
    assert found.role("trainer") == {}


@pytest.mark.parametrize("missing", ["TrainingJobReplicaName", "TrainingJobReplicaIndex"])
def test_a_pod_without_a_slot_label_is_a_stray(missing: str) -> None:
    labels = {key: value for key, value in child_labels(JOB, "trainer").items() if key != missing}
    pod = a_pod(JOB, "trainer", 0, labels=labels)

    assert seen(pod).strays == (pod,)


def test_the_largest_index_that_is_read_has_nine_digits() -> None:
    assert SLOTS.slot_of({"TrainingJobReplicaName": "w", "TrainingJobReplicaIndex": "123456789"}) == ("w", 123456789)


def test_of_two_pods_in_one_slot_the_first_by_name_stays_and_the_other_is_a_stray() -> None:
    a, b, c = (a_pod(JOB, "trainer", 0, name=name) for name in ("pod-a", "pod-b", "pod-c"))

    for order in itertools.permutations((a, b, c)):
        assert seen(*order).role("trainer") == {0: a}
        assert seen(*order).strays == (b, c)


def test_all_pods_come_by_role_and_number_and_the_strays_last() -> None:
    pods = [a_pod(JOB, "trainer", i) for i in (10, 2, 0)] + [a_pod(JOB, "ps", 1)]
    stray = a_pod(JOB, "a-role", 0, labels={}, name="a-stray")

    names = [pod.key.name for pod in seen(*pods, stray).all_pods]

    assert names == ["mnist-ps-1", "mnist-trainer-0", "mnist-trainer-2", "mnist-trainer-10", "a-stray"]


def test_the_order_of_all_pods_does_not_come_from_their_names() -> None:
    trainer, ps = a_pod(JOB, "trainer", 0, name="a"), a_pod(JOB, "ps", 0, name="b")

    assert seen(trainer, ps).all_pods == (ps, trainer)


@pytest.mark.parametrize(
    ("pod", "slot"),
    [
        pytest.param("job-actor-7", ("actor", 7), id="the number after the last dash"),
        pytest.param("7", ("actor", 7), id="a number"),
        pytest.param("job-actor", None, id="no number"),
        pytest.param("", None, id="no name"),
    ],
)
def test_a_name_may_end_with_the_index(pod: str, slot: tuple[str, int] | None) -> None:
    slots = SlotLabels(role="task", index="pod", ends_with_index=True)

    assert slots.slot_of({"task": "actor", "pod": pod}) == slot


def test_a_kind_without_an_index_label_has_one_slot_for_a_role() -> None:
    job, slots = a_dijob(), SlotLabels(role="replica-type")
    coordinator = a_pod(job, "coordinator")
    second = a_pod(job, "coordinator", name="cartpole-coordinator-2")

    found = Observed.of((second, coordinator), (), slots)

    assert found.role("coordinator") == {0: coordinator}
    assert found.strays == (second,)


def test_pods_of_an_older_operator_say_their_slot_by_older_labels() -> None:
    slots = SlotLabels("type", "index", older=(SlotLabels("old-type", "old-index"), SlotLabels("first", "number")))

    assert slots.slot_of({"old-type": "worker", "old-index": "1"}) == ("worker", 1)
    assert slots.slot_of({"first": "worker", "number": "2"}) == ("worker", 2)
    assert slots.slot_of({"type": "server", "index": "0", "old-type": "worker", "old-index": "1"}) == ("server", 0)
    assert slots.slot_of({"type": "server"}) is None
    assert slots.slot_of({}) is None
