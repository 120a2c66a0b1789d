import pytest

from tests.runtime.kind import a_pod, a_service
from trainmaster.core.ids import POD, SERVICE, Key
from trainmaster.core.view import PodView, ServiceView
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.store import Store

JOB, OTHER = "uid-of-mnist", "uid-of-other"
KEY = Key("ml", "mnist-worker-0")
UID = "uid-of-mnist-worker-0"


@pytest.fixture
def pods() -> Store[PodView]:
    store = Store[PodView](POD)
    store.replace([], 100)
    return store


@pytest.fixture
def services() -> Store[ServiceView]:
    store = Store[ServiceView](SERVICE)
    store.replace([], 100)
    return store


@pytest.fixture
def barrier(pods: Store[PodView], services: Store[ServiceView]) -> Barrier:
    return Barrier({POD: pods, SERVICE: services})


def test_a_job_that_nothing_was_written_for_may_be_planned(barrier: Barrier) -> None:
    assert barrier.is_open(JOB)


# --- writes that have a version ---


def test_a_write_closes_it_until_the_store_has_seen_the_version(barrier: Barrier, pods: Store[PodView]) -> None:
    barrier.wrote(JOB, POD, 105)

    assert not barrier.is_open(JOB)
    pods.advance(104)
    assert not barrier.is_open(JOB)
    pods.advance(105)
    assert barrier.is_open(JOB)


def test_a_write_that_the_store_has_seen_before_its_answer_came_does_not_close_it(
    barrier: Barrier, pods: Store[PodView]
) -> None:
    pods.advance(105)
    barrier.wrote(JOB, POD, 105)

    assert barrier.is_open(JOB)


def test_the_newest_of_several_writes_counts_whatever_order_the_answers_came_in(
    barrier: Barrier, pods: Store[PodView]
) -> None:
    barrier.wrote(JOB, POD, 107)
    barrier.wrote(JOB, POD, 105)
    pods.advance(106)

    assert not barrier.is_open(JOB)
    pods.advance(107)
    assert barrier.is_open(JOB)


def test_every_resource_has_to_catch_up_in_its_own_store(
    barrier: Barrier, pods: Store[PodView], services: Store[ServiceView]
) -> None:
    barrier.wrote(JOB, POD, 105)
    barrier.wrote(JOB, SERVICE, 106)
    pods.advance(1000)

    assert not barrier.is_open(JOB)
    services.advance(106)
    assert barrier.is_open(JOB)


def test_the_writes_of_one_job_do_not_hold_back_another(barrier: Barrier) -> None:
    barrier.wrote(JOB, POD, 105)
    barrier.deleted(JOB, POD, KEY, UID)

    assert barrier.is_open(OTHER)


# --- deletes without a version ---


def test_a_delete_without_version_closes_it_until_the_store_shows_it(barrier: Barrier, pods: Store[PodView]) -> None:
    pods.put(a_pod(version=101))
    barrier.deleted(JOB, POD, KEY, UID)

    assert not barrier.is_open(JOB)
    pods.advance(1000)
    assert not barrier.is_open(JOB)
    pods.remove(a_pod(version=1001))
    assert barrier.is_open(JOB)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(a_pod(version=102, deleting=True), id="it is on its way out"),
        pytest.param(a_pod(version=102, uid="another"), id="another incarnation has its name"),
    ],
)
def test_a_delete_is_shown_by_more_than_absence(barrier: Barrier, pods: Store[PodView], after: PodView) -> None:
    pods.put(a_pod(version=101))
    barrier.deleted(JOB, POD, KEY, UID)
    pods.put(after)

    assert barrier.is_open(JOB)


def test_one_of_two_deletes_is_not_enough(barrier: Barrier, services: Store[ServiceView]) -> None:
    for name in ("a", "b"):
        services.put(a_service(name, version=101))
        barrier.deleted(JOB, SERVICE, Key("ml", name), f"uid-of-{name}")
    services.remove(a_service("a", version=102))

    assert not barrier.is_open(JOB)
    services.remove(a_service("b", version=103))
    assert barrier.is_open(JOB)


def test_creates_and_deletes_are_waited_for_together(barrier: Barrier, pods: Store[PodView]) -> None:
    pods.put(a_pod(version=101))
    barrier.wrote(JOB, POD, 110)
    barrier.deleted(JOB, POD, KEY, UID)

    pods.advance(110)
    assert not barrier.is_open(JOB)
    pods.remove(a_pod(version=111))
    assert barrier.is_open(JOB)


# --- nothing stays behind ---


def test_what_the_stores_show_is_forgotten(barrier: Barrier, pods: Store[PodView]) -> None:
    pods.put(a_pod(version=101))
    barrier.wrote(JOB, POD, 105)
    barrier.deleted(JOB, POD, KEY, UID)
    pods.remove(a_pod(version=110))

    assert barrier.is_open(JOB)
    assert (barrier._written, barrier._deleted) == ({}, {})


def test_a_job_that_is_gone_is_forgotten(barrier: Barrier, pods: Store[PodView]) -> None:
    pods.put(a_pod(version=101))
    barrier.wrote(JOB, POD, 999)
    barrier.deleted(JOB, POD, KEY, UID)
    barrier.forget(JOB)

    assert barrier.is_open(JOB)
    assert (barrier._written, barrier._deleted) == ({}, {})


def test_forgetting_an_unknown_job_is_harmless(barrier: Barrier) -> None:
    barrier.forget("never-heard-of")


# --- etcd was restored from a backup ---


def test_a_write_from_before_the_backup_was_restored_is_not_waited_for(barrier: Barrier, pods: Store[PodView]) -> None:
    barrier.wrote(JOB, POD, 105)
    pods.rewind()
    pods.replace([], 60)

    assert barrier.is_open(JOB)


def test_a_delete_from_before_the_backup_was_restored_is_not_waited_for(barrier: Barrier, pods: Store[PodView]) -> None:
    pods.put(a_pod())
    barrier.deleted(JOB, POD, KEY, UID)
    pods.rewind()
    pods.replace([a_pod(version=50)], 60)

    assert barrier.is_open(JOB)


def test_writes_after_the_backup_was_restored_and_those_of_other_resources_are_waited_for(
    barrier: Barrier, pods: Store[PodView]
) -> None:
    barrier.wrote(OTHER, SERVICE, 105)
    pods.rewind()
    barrier.wrote(JOB, POD, 70)
    pods.replace([], 60)

    assert not barrier.is_open(JOB)
    assert not barrier.is_open(OTHER)
