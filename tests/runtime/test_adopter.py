"""Which children of another operator a job adopts, and how."""

from typing import Any

import pytest

from tests.build import (
    NOW,
    Json,
    an_mxjob,
    child_labels,
    kind_of,
    owner_reference,
    view_of,
    view_of_candidate,
    view_of_pod,
)
from tests.kinds.mlkube.build import a_mxjob
from tests.takeover.load import RESOURCES, items_of
from trainmaster.core.ids import JOB, POD, SERVICE, Resource
from trainmaster.core.plan import Patch, Plan
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import CandidateView
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.adopter import Adopter
from trainmaster.runtime.store import Store


def a_left_pod(job: Json, role: str = "Worker", **metadata: Any) -> Json:
    """A pod that the operator before ours created."""
    name = f"{job['metadata']['name']}-{role.lower()}-0"
    given = {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "uid": f"uid-of-{name}",
        "resourceVersion": "200",
        "labels": child_labels(job, role),
        "ownerReferences": [owner_reference(job)],
    }
    return {"kind": "Pod", "metadata": given | metadata}


class Rig:
    """An adopter that sees a job and these objects."""

    def __init__(self, job: Json, *left: Json) -> None:
        self.job, self.kind = job, kind_of(job)
        assert self.kind.predecessor
        self.adopted: dict[Resource, Store[Any]] = {r: Store[Any](r) for r in (POD, SERVICE, *self.kind.children)}
        for store in self.adopted.values():
            store.replace([], 100)
        candidates = {resource: Store[CandidateView](resource) for resource in self.kind.predecessor.resources}
        for resource, store in candidates.items():
            store.replace([view_of_candidate(body) for body in left if RESOURCES[body["kind"]] == resource], 100)
        self.adopter = Adopter(
            ResourceKinds(self.kind),
            {(self.kind.predecessor, resource): store for resource, store in candidates.items()},
            self.adopted,
        )

    def plan(self) -> Plan | None:
        return self.adopter.plan(view_of(self.job), (), NOW)

    def patches(self) -> dict[str, Patch]:
        plan = self.plan()
        return {patch.key.name: patch for patch in plan.patches} if plan else {}


def test_a_child_of_the_job_gets_our_label_in_the_version_that_was_seen() -> None:
    job = an_mxjob()
    (patch,) = Rig(job, a_left_pod(job)).patches().values()

    assert patch.body == {"metadata": {"labels": MANAGED_BY}}
    assert (patch.resource, patch.uid, patch.version) == (POD, "uid-of-mnist-worker-0", 200)


def test_the_job_is_planned_at_once_after_its_children_are_adopted() -> None:
    job = an_mxjob()
    plan = Rig(job, a_left_pod(job)).plan()

    assert plan is not None
    assert plan.requeue_after == 0


OTHER = an_mxjob("other")


@pytest.mark.parametrize(
    ("job", "left"),
    [
        pytest.param(an_mxjob(), [], id="nothing is left"),
        pytest.param(an_mxjob(), [a_left_pod(OTHER)], id="another job owns it"),
        pytest.param(an_mxjob(), [a_left_pod(an_mxjob(), namespace="elsewhere")], id="it is in another namespace"),
        pytest.param(an_mxjob(), [a_left_pod(an_mxjob(), ownerReferences=[])], id="it has no owner"),
        pytest.param(
            an_mxjob(),
            [a_left_pod(an_mxjob(), ownerReferences=[owner_reference(an_mxjob()) | {"controller": False}])],
            id="the job is not its controller",
        ),
        pytest.param(
            an_mxjob(policy={"managedBy": "kueue.x-k8s.io/multikueue"}),
            [a_left_pod(an_mxjob())],
            id="managed by another",
        ),
    ],
)
def test_nothing_is_adopted(job: Json, left: list[Json]) -> None:
    assert Rig(job, *left).plan() is None


def test_a_job_that_is_being_deleted_adopts_nothing() -> None:
    job = an_mxjob()
    job["metadata"]["deletionTimestamp"] = "2026-11-15T12:00:00Z"

    assert Rig(job, a_left_pod(job)).plan() is None


def test_a_child_whose_adoption_is_seen_is_not_adopted_again() -> None:
    job = an_mxjob()
    rig = Rig(job, a_left_pod(job))
    adopted = a_left_pod(job, labels=child_labels(job, "Worker") | MANAGED_BY, resourceVersion="201")
    rig.adopted[POD].put(view_of_pod(adopted))

    assert rig.plan() is None


def test_a_child_that_was_created_anew_is_adopted() -> None:
    job = an_mxjob()
    rig = Rig(job, a_left_pod(job, uid="new"))
    rig.adopted[POD].put(view_of_pod(a_left_pod(job)))

    assert [patch.uid for patch in rig.patches().values()] == ["new"]


def test_more_children_than_one_pass_may_change_take_several_passes() -> None:
    job = an_mxjob()
    left = [a_left_pod(job, name=f"mnist-worker-{n}", uid=f"uid-{n}") for n in range(600)]

    assert len(Rig(job, *left).patches()) == 500


# --- children without an owner reference ---

RUNNING = "mxjob-mlkube-c377703/dist/running"


def _left(path: str = RUNNING) -> tuple[Json, list[Json]]:
    job, *left = items_of(path)
    return job, [body for body in left if body["kind"] in RESOURCES]


def test_batch_jobs_and_the_service_of_the_mxnet_operator_get_their_job_as_owner() -> None:
    job, left = _left()
    patches = Rig(job, *left).patches()
    names = {patch.key.name for patch in patches.values() if patch.resource in (JOB, SERVICE)}
    owner = owner_reference(job)

    assert names == {body["metadata"]["name"] for body in left if body["kind"] != "Pod"}
    assert all(
        patch.body["metadata"] == {"labels": MANAGED_BY, "ownerReferences": [owner]}
        for patch in patches.values()
        if patch.resource in (JOB, SERVICE)
    )


def test_pods_of_these_batch_jobs_get_our_label_and_keep_their_owner() -> None:
    job, left = _left()
    pods = [patch for patch in Rig(job, *left).patches().values() if patch.resource == POD]

    assert len(pods) == 6
    assert all(patch.body == {"metadata": {"labels": MANAGED_BY}} for patch in pods)


def test_the_next_pod_of_a_batch_job_that_was_adopted_is_adopted() -> None:
    job, left = _left()
    batch = next(body for body in left if body["kind"] == "Job")
    pod = next(body for body in left if body["kind"] == "Pod")
    plan = Rig(job, pod).adopter.plan(view_of(job), [batch["metadata"]["uid"]], NOW)

    assert plan is not None
    assert [patch.key.name for patch in plan.patches] == [pod["metadata"]["name"]]


def _with(body: Json, **metadata: Any) -> Json:
    return {**body, "metadata": body["metadata"] | metadata}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"labels": {"mxnet.mlkube.io": "", "runtime_id": "zzzz"}}, id="another runtime id"),
        pytest.param({"labels": {"mxnet.mlkube.io": ""}}, id="no runtime id"),
        pytest.param({"name": "somebody-else-1kkf-0"}, id="another name"),
        pytest.param({"ownerReferences": [owner_reference(OTHER)]}, id="somebody else's"),
        pytest.param({"ownerReferences": [owner_reference(OTHER) | {"controller": False}]}, id="owned by another"),
    ],
)
def test_an_object_that_may_be_of_another_job_is_not_adopted(change: Json) -> None:
    job, left = _left()
    batch = next(body for body in left if body["kind"] == "Job")

    assert Rig(job, _with(batch, **change)).plan() is None


def test_a_job_that_has_ended_leaves_what_the_mxnet_operator_left() -> None:
    job, left = _left("mxjob-mlkube-c377703/failed/failed")

    assert Rig(job, *left).plan() is None


def test_a_job_whose_spec_is_wrong_adopts_nothing_without_an_owner() -> None:
    _, left = _left()

    assert Rig(a_mxjob("takeover-1", specs=[], RuntimeId="1kkf"), *left).plan() is None
