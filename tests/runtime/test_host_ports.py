import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from testbed.plane import free_port
from tests.build import view_of, view_of_pod
from tests.runtime.kind import TOY, a_pod, pod_json, toy_json
from trainmaster.core.ids import POD, Key
from trainmaster.core.view import JobView, PodView
from trainmaster.runtime.host_ports import HostPorts, is_free_here
from trainmaster.runtime.store import Store

ME = view_of(toy_json("me"))
OTHER = view_of(toy_json("other"))


class Rig:
    """A book that follows a store of jobs and one of pods."""

    def __init__(self) -> None:
        self.jobs, self.pods = Store[JobView](TOY), Store[PodView](POD)
        self.book = HostPorts()
        self.book.follow(self.jobs, self.pods)
        self.jobs.replace([], 1)
        self.pods.replace([], 1)

    @property
    def taken(self) -> list[int]:
        return sorted(self.book.taken(ME))


def a_job(*ports: int, name: str = "mnist", version: int = 100) -> JobView:
    given = {"worker-0": {str(1000 + n): port for n, port in enumerate(ports)}}
    return view_of(toy_json(name, version=version, status={"phase": "Running", "ports": given}))


def elsewhere(job: JobView) -> JobView:
    return msgspec.structs.replace(job, key=Key("elsewhere", job.key.name))


def a_holder(*ports: int, name: str = "mnist-worker-0", version: int = 100, **fields: Any) -> PodView:
    body = pod_json(name, version=version, **fields)
    body["spec"]["containers"] = [{"name": "c", "ports": [{"containerPort": p, "hostPort": p} for p in ports]}]
    return view_of_pod(body)


def test_an_empty_book_has_no_port_taken() -> None:
    assert Rig().taken == []


def test_the_ports_of_a_job_are_taken_while_its_status_names_them() -> None:
    rig = Rig()
    rig.jobs.put(a_job(20001, 20002))
    assert rig.taken == [20001, 20002]

    rig.jobs.put(a_job(20001, 20003, version=101))
    assert rig.taken == [20001, 20003]

    rig.jobs.put(a_job(version=102))
    assert rig.taken == []


def test_the_ports_of_a_job_that_is_gone_are_free() -> None:
    rig = Rig()
    rig.jobs.put(job := a_job(20001))
    rig.jobs.remove(job)

    assert rig.taken == []


@pytest.mark.parametrize(
    ("phase", "deleting", "taken"),
    [
        pytest.param("Pending", False, [20001], id="pending"),
        pytest.param("Running", False, [20001], id="running"),
        pytest.param("Running", True, [20001], id="on its way out"),
        pytest.param("Succeeded", False, [], id="succeeded"),
        pytest.param("Failed", False, [], id="failed"),
    ],
)
def test_a_pod_holds_its_ports_until_it_has_ended(phase: str, deleting: bool, taken: list[int]) -> None:
    rig = Rig()
    rig.pods.put(a_holder(20001))
    rig.pods.put(a_holder(20001, version=101, phase=phase, deleting=deleting))

    assert rig.taken == taken


def test_a_port_is_free_when_nobody_has_it_any_more() -> None:
    """The job names it, and its pod holds it; two nodes have a pod each with a port that the user chose."""
    rig = Rig()
    rig.jobs.put(job := a_job(20001))
    rig.pods.put(pod := a_holder(20001, 80))
    rig.pods.put(other := a_holder(80, name="other-worker-0"))

    rig.jobs.remove(job)
    assert rig.taken == [80, 20001]
    rig.pods.remove(pod)
    assert rig.taken == [80]
    rig.pods.remove(other)
    assert rig.taken == []


def test_a_new_list_replaces_what_was_known() -> None:
    rig = Rig()
    rig.jobs.put(a_job(20001))
    rig.jobs.replace([a_job(20002, name="other", version=300)], 300)

    assert rig.taken == [20002]


def test_what_a_job_drew_is_taken_for_all_the_others() -> None:
    rig = Rig()
    rig.jobs.put(a_job(20001))
    rig.book.draw(OTHER, (20002, 20003))
    rig.book.draw(ME, (20004,))

    assert rig.taken == [20001, 20002, 20003]
    assert rig.book.taken(OTHER) == {20001, 20004}


def test_what_was_drawn_twice_on_one_version_stays_taken_for_others() -> None:
    """Both statuses were sent, and one of them was stored: nobody knows which."""
    rig = Rig()
    rig.book.draw(a_job(), (20001,))
    rig.book.draw(a_job(), (20002,))

    assert rig.taken == [20001, 20002]


def test_what_was_drawn_is_forgotten_when_another_version_of_the_job_is_seen() -> None:
    rig = Rig()
    rig.jobs.put(a_job())
    rig.book.draw(a_job(), (20001, 20002))
    rig.jobs.put(a_job(name="other"))
    assert rig.taken == [20001, 20002]

    rig.jobs.put(a_job(20001, version=101))
    assert rig.taken == [20001]


def test_what_was_drawn_for_a_job_that_is_gone_is_free() -> None:
    rig = Rig()
    rig.jobs.put(job := a_job())
    rig.book.draw(job, (20001,))
    rig.jobs.remove(job)

    assert rig.taken == []


def test_a_book_of_pods_without_ports_gives_the_same_answer_without_work() -> None:
    rig = Rig()
    before = rig.book.taken(ME)
    rig.pods.put(a_pod())

    assert rig.book.taken(ME) is before


def test_a_namespace_has_the_ports_that_other_jobs_of_it_have_or_have_just_drawn() -> None:
    rig = Rig()
    rig.jobs.put(mine := a_job(20001, 20002, name="me"))
    rig.jobs.put(other := a_job(20003, name="other"))
    rig.jobs.put(far := elsewhere(a_job(20004, 20005, name="far")))
    assert [rig.book.namespace_ports(job) for job in (mine, other, far)] == [1, 2, 0]

    rig.book.draw(other, (20006, 20007))
    rig.book.draw(far, (20008,))
    assert [rig.book.namespace_ports(job) for job in (mine, other, far)] == [3, 2, 0]

    rig.jobs.put(a_job(20003, 20006, 20007, name="other", version=101))
    assert rig.book.namespace_ports(mine) == 3

    rig.jobs.put(a_job(name="other", version=102))
    rig.jobs.remove(far)
    assert rig.book.namespace_ports(mine) == 0


def test_strangers_are_asked_about_by_port() -> None:
    book = HostPorts(is_free=lambda port: port % 2 == 0)

    assert book.foreign((1, 2, 3)) == {1, 3}
    assert HostPorts().foreign((1, 2, 3)) == frozenset()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """On a port that no outgoing connection gets."""
    with socket.create_server(("127.0.0.1", free_port())) as server:
        yield server


def test_a_port_that_a_program_of_this_machine_listens_on_is_not_free_until_it_ends(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not is_free_here(port)

    listener.close()
    assert is_free_here(port)
