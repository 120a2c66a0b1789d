"""Kueue's pod groups, for jobs of every kind. tests/kueue runs the same jobs with a real Kueue.

What Kueue's webhook and controller demand of a group is in ``must_be_a_group``.
"""

import re
from typing import Any

import pytest

from tests.build import Json, a_replica, an_aitj, plan_of, pod_json, view_of_pod
from tests.laws.memory import Object
from tests.matrix.kinds import AITJ, BY_POD, DITASK, KUBEFLOW, Options, Row
from tests.matrix.world import World
from trainmaster.core.ids import POD, Key
from trainmaster.core.view import PodView
from trainmaster.lifecycle import queue

KUEUE = "kueue.x-k8s.io"
QUEUE, GROUP, SIZE = f"{KUEUE}/queue-name", f"{KUEUE}/pod-group-name", f"{KUEUE}/pod-group-total-count"
each_kind = pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in BY_POD])


def world_of(row: Row, *, labels: Json | None = None, options: Options | None = None, **metadata: Any) -> World:
    job = row.build(options or Options())
    job["metadata"] |= {"labels": {QUEUE: "night"} if labels is None else labels} | metadata
    world = World(job, kind=row.kind)
    for resource, body in row.related:
        world.put(resource, body)
    world.create()
    world.run(60)
    return world


def labels_of(pod: Object) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"]["labels"]
    return found


def annotations_of(pod: Object) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("annotations", {})
    return found


def groups_of(world: World) -> dict[str, list[Object]]:
    """The pods that stay, by group; those without a group are queued alone."""
    found: dict[str, list[Object]] = {}
    for pod in world.pods.values():
        if "deletionTimestamp" not in pod["metadata"]:
            found.setdefault(labels_of(pod).get(GROUP, ""), []).append(pod)
    return found


def must_be_a_group(name: str, pods: list[Object]) -> None:
    """Kueue admits a group when its pods have one name, one queue, one size that is the number of its pods, and at most
    eight pod sets. The name is that of a Workload, and the pod sets have names, too."""
    assert re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", name), name
    assert {annotations_of(pod)[SIZE] for pod in pods} == {str(len(pods))}
    sets = {annotations_of(pod)[f"{KUEUE}/role-hash"] for pod in pods}
    assert len(sets) <= 8
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", each) for each in sets), sets
    assert len({labels_of(pod)[QUEUE] for pod in pods}) == 1


def is_declared(row: Row) -> bool:
    """Of a kind with a coordinator, which requests two collectors when it runs."""
    return row.deciding == ("job-coordinator",)


@each_kind
def test_the_pods_that_a_job_starts_with_are_one_group(row: Row) -> None:
    with world_of(row) as world:
        groups = groups_of(world)
        alone = groups.pop("", [])

        assert len(alone) == (2 if is_declared(row) else 0)
        (name,) = groups
        must_be_a_group(name, groups[name])
        for pod in world.pods.values():
            assert labels_of(pod)[QUEUE] == "night"
            assert labels_of(pod)[f"{KUEUE}/managed"] == "true"
            # Without it Kueue keeps deleted pods, and their names are needed again.
            assert annotations_of(pod)[f"{KUEUE}/pod-suspending-parent"] == "trainmaster"


@each_kind
def test_a_job_without_a_queue_says_nothing_to_kueue(row: Row) -> None:
    with world_of(row, labels={}) as world:
        for pod in world.pods.values():
            assert not [word for word in (*labels_of(pod), *annotations_of(pod)) if KUEUE in word]


def test_pods_have_the_priority_class_of_their_job() -> None:
    with world_of(AITJ, labels={QUEUE: "night", f"{KUEUE}/priority-class": "urgent"}) as world:
        assert {labels_of(pod)[f"{KUEUE}/priority-class"] for pod in world.pods.values()} == {"urgent"}


@each_kind
def test_a_replica_that_is_started_again_takes_the_free_place_or_all_are_a_new_group(row: Row) -> None:
    with world_of(row) as world:
        (before,) = groups_of(world).keys() - {""}
        victim = row.victim_of(world)
        world.api.set_status(POD, victim, {"phase": "Failed", "reason": "NodeLost", "message": "gone"})
        world.run(120)

        groups = {
            name: [p for p in pods if p["status"]["phase"] != "Failed"] for name, pods in groups_of(world).items()
        }
        groups.pop("", None)
        (after,) = groups
        must_be_a_group(after, groups[after])
        is_whole = row.restarts_all or (is_declared(row) and "coordinator" in victim.name and len(groups[after]) == 1)
        assert (after != before) == is_whole


@each_kind
def test_the_pods_of_a_job_that_is_resumed_are_one_group(row: Row) -> None:
    """Each time another one: Kueue may still be removing the one before."""
    with world_of(row) as world:
        names = [*groups_of(world).keys() - {""}]
        for _ in range(2):
            world.edit(row.suspend, value=True)
            world.run(120)
            world.edit(row.suspend, value=False)
            world.run(120)
            (after,) = groups_of(world).keys() - {""}
            must_be_a_group(after, groups_of(world)[after])
            names.append(after)

        assert len(set(names)) == 3, names


@each_kind
def test_pods_that_are_created_after_all_were_deleted_are_another_group(row: Row) -> None:
    with world_of(row) as world:
        (before,) = groups_of(world).keys() - {""}
        for pod in groups_of(world)[before]:
            world.api.remove(POD, Key(world.key.namespace, pod["metadata"]["name"]))
        world.run(120)

        assert before not in groups_of(world)


def test_a_job_that_is_created_anew_is_another_group() -> None:
    names = set[str]()
    for uid in ("u1", "u2"):
        job = an_aitj(labels={QUEUE: "night"})
        job["metadata"]["uid"] = uid
        names |= {create.body["metadata"]["labels"][GROUP] for create in plan_of(job).creates if create.resource == POD}

    assert len(names) == 2


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in (AITJ, KUBEFLOW, DITASK)])
def test_an_operator_that_died_while_it_created_pods_completes_their_group(row: Row) -> None:
    with world_of(row) as world:
        (before,) = groups_of(world).keys() - {""}
        members = [Key(world.key.namespace, pod["metadata"]["name"]) for pod in groups_of(world)[before]]
        world.api.remove(POD, members[-1])
        for key in members[:-1]:  # they have not run yet: nothing is missed
            world.api.set_status(POD, key, {"phase": "Pending"})
        world.set_status({"ran": None})
        world.restart()
        world.operate()

        (after,) = groups_of(world).keys() - {""}
        assert after == before
        must_be_a_group(after, groups_of(world)[after])


ELASTIC = (
    (("replicaSpecs", "trainer", "edlPolicy"), "Auto"),
    (("replicaSpecs", "trainer", "minReplicas"), 1),
    (("replicaSpecs", "trainer", "maxReplicas"), 4),
)


def test_replicas_that_an_elastic_job_can_start_without_are_queued_alone() -> None:
    with world_of(AITJ, options=Options(spec=ELASTIC)) as world:
        groups = groups_of(world)

        assert len(groups.pop("")) == 3
        (name,) = groups
        must_be_a_group(name, groups[name])
        assert len(groups[name]) == 2


def test_replicas_that_are_added_by_hand_are_queued_alone() -> None:
    with world_of(AITJ, options=Options(spec=((("replicaSpecs", "trainer", "edlPolicy"), "Manual"),))) as world:
        (before,) = groups_of(world)
        world.edit(AITJ.replicas, 4)
        world.run(60)

        groups = groups_of(world)
        assert len(groups.pop("")) == 2
        assert groups.keys() == {before}
        must_be_a_group(before, groups[before])


def test_pods_of_a_job_with_more_roles_than_a_group_may_have_are_queued_alone() -> None:
    roles = tuple((("replicaSpecs", f"r{number}"), {"replicas": 1}) for number in range(9))
    job = AITJ.build(Options())
    template = job["spec"]["replicaSpecs"]["ps"]["template"]
    spec = tuple((path, {**fields, "template": template}) for path, fields in roles)
    with world_of(AITJ, options=Options(spec=spec)) as world:
        assert groups_of(world).keys() == {""}


def test_a_job_that_gets_a_queue_while_it_runs_has_a_group_of_what_is_created_from_then_on() -> None:
    scope = (("replicaSpecs", "trainer", "restartScope"), "Pod")
    with world_of(AITJ, labels={}, options=Options(spec=(scope,))) as world:
        world.api.objects[world.kind.resource][world.key]["metadata"]["labels"] = {QUEUE: "night"}
        world.put(world.kind.resource, world.job)
        world.end_container(AITJ.victim_of(world), 1, "Error")
        world.run(60)

        groups = groups_of(world)
        assert len(groups.pop("")) == 2
        (name,) = groups
        must_be_a_group(name, groups[name])


def test_a_replica_that_joins_a_group_has_its_queue_also_if_the_job_has_another_one_now() -> None:
    scope = (("replicaSpecs", "trainer", "restartScope"), "Pod")
    with world_of(AITJ, options=Options(spec=(scope,))) as world:
        world.api.objects[world.kind.resource][world.key]["metadata"]["labels"] = {QUEUE: "day"}
        world.put(world.kind.resource, world.job)
        victim = AITJ.victim_of(world)
        before = world.pods[victim]["metadata"]["uid"]
        world.end_container(victim, 1, "Error")
        world.run(60)

        assert world.pods[victim]["metadata"]["uid"] != before
        (name,) = groups_of(world)
        must_be_a_group(name, groups_of(world)[name])


# --- groups that are not continued ---


def is_closed(pod: Object) -> bool:
    return annotations_of(pod).get(f"{KUEUE}/retriable-in-group") == "false"


def test_the_group_of_a_job_that_has_failed_and_keeps_its_pods_is_over() -> None:
    """Else Kueue would keep their quota, and wait for others in their place."""
    spec = ((("cleanPodPolicy",), "None"), (("replicaSpecs", "trainer", "restartPolicy"), "Never"))
    with world_of(AITJ, options=Options(spec=spec)) as world:
        world.end_container(AITJ.victim_of(world), 1, "Error")
        world.run(60)

        assert AITJ.result(world.job) == "Failed"
        assert [is_closed(pod) for pod in world.pods.values()].count(True) == 1


def test_the_group_of_a_suspended_job_that_keeps_pods_is_over_and_is_not_joined_again() -> None:
    with world_of(AITJ) as world:
        (before,) = groups_of(world)
        for key in list(world.pods):
            if "trainer-0" in key.name:
                world.end_container(key, 0, "Completed")
        world.edit(("completePolicy",), "All")
        world.edit(("suspend",), value=True)
        world.run(120)
        assert [is_closed(pod) for pod in world.pods.values()] == [True]
        world.edit(("suspend",), value=False)
        world.run(60)

        groups = groups_of(world)
        assert len(groups.pop(before)) == 1
        (after,) = groups
        must_be_a_group(after, groups[after])
        world.edit(("suspend",), value=True)
        world.run(120)
        world.edit(("suspend",), value=False)
        world.run(60)
        assert after not in groups_of(world), "Kueue may still be removing it"


JOB = an_aitj()


def view(index: int = 0, *, phase: str = "Running", **metadata: Any) -> PodView:
    pod = pod_json(JOB, "trainer", index, phase=phase)
    pod["metadata"]["labels"] |= {GROUP: "mnist-1", QUEUE: "night"}
    pod["metadata"]["annotations"] = {SIZE: "2", "other": "dropped"} | metadata
    return view_of_pod(pod)


def test_kueue_is_told_nothing_about_a_group_whose_pods_have_all_succeeded() -> None:
    assert queue.closed([view(0, phase="Succeeded"), view(1, phase="Succeeded")]) == ()
    assert len(queue.closed([view(0, phase="Succeeded")])) == 1


def test_a_failed_pod_that_stays_takes_no_place_in_its_group() -> None:
    """One of two pods has failed for good, and another replica is asked for: Kueue admits it in its place."""
    job = an_aitj(trainer=a_replica(3, failPolicy="None"), labels={QUEUE: "night"})

    plan = plan_of(job, [view(0), view(1, phase="Failed")])

    (made,) = [create.body["metadata"] for create in plan.creates if create.resource == POD]
    assert (made["name"], made["labels"][GROUP]) == ("mnist-trainer-2", "mnist-1")


def test_a_view_has_the_annotations_of_kueue_and_no_others() -> None:
    assert view().annotations == {SIZE: "2"}


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1, "pod mnist-trainer-0 waits for Kueue to admit it to queue night"),
        (2, "2 pods wait for Kueue to admit them to queue night"),
    ],
)
def test_the_message_says_which_queue_pods_wait_for(number: int, message: str) -> None:
    pods = []
    for index in range(number):
        pod = pod_json(JOB, "trainer", index, phase="Pending")
        pod["metadata"]["labels"] |= {GROUP: "mnist-1", QUEUE: "night"}
        pod["spec"]["schedulingGates"] = [{"name": f"{KUEUE}/admission"}]
        pods.append(view_of_pod(pod))

    assert queue.waiting(pods) == f"{message}; kubectl describe workload mnist-1 says why"
    assert queue.waiting([view(phase="Pending")]) == ""
