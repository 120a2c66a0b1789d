import asyncio
from collections import Counter
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.runtime.cluster import Call, FakeCluster, raising, waiting
from tests.runtime.kind import KEY, TOY, a_pod, a_toy, create_pod, create_pods, pod_json, toy_json
from trainmaster.core.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
    Trainmaster,
    Unauthorized,
    Unreachable,
)
from trainmaster.core.ids import POD, Key
from trainmaster.core.plan import Delete, Plan
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import JobView, PodView
from trainmaster.kinds.base import Failure
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.executor import IN_FLIGHT, Applied, Executor
from trainmaster.runtime.store import Store

pytestmark = pytest.mark.looptime

JOB = a_toy()
WORKER = Key("ml", "mnist-worker-0")


def delete_pod(name: str = "mnist-worker-0", uid: str = "") -> Delete:
    return Delete(POD, Key("ml", name), uid or f"uid-of-{name}", "the job has ended")


class Rig:
    """An executor on a cluster, and the stores that its barrier looks at."""

    def __init__(self, *pods: str) -> None:
        self.cluster = FakeCluster((TOY, toy_json()), *((POD, pod_json(name)) for name in pods))
        self.pods, self.jobs = Store[PodView](POD), Store[JobView](TOY)
        self.pods.replace([a_pod(name) for name in pods], 500)
        self.jobs.replace([JOB], 500)
        self.barrier = Barrier({POD: self.pods, TOY: self.jobs})
        self.executor = Executor(self.cluster, self.barrier)

    async def act(self, *, deletes: tuple[Delete, ...] = (), creates: Any = ()) -> Applied:
        return await self.executor.act(JOB, Plan(deletes=deletes, creates=creates))

    def stored_job(self) -> JobView:
        found = self.cluster.find(TOY, KEY)
        assert found is not None
        return a_toy(version=int(found["metadata"]["resourceVersion"]))


def batches(calls: list[Call]) -> list[int]:
    """How many calls were made at each moment."""
    return [count for _, count in sorted(Counter(call.at for call in calls).items())]


# --- creates ---


async def test_creates_send_the_body_of_the_plan() -> None:
    rig = Rig()
    applied = await rig.act(creates=(create_pod(),))

    (call,) = rig.cluster.asked("create")
    assert (call.resource, call.key) == (POD, WORKER)
    assert call.body["spec"] == {"restartPolicy": "Never"}
    assert (applied.created, applied.failures) == ([create_pod()], [])


async def test_creates_start_slowly_and_double() -> None:
    rig = Rig()
    rig.cluster.before = waiting("create", 1.0)
    applied = await rig.act(creates=create_pods(20))

    assert batches(rig.cluster.asked("create")) == [1, 2, 4, 8, 5]
    assert rig.cluster.most_at_once == 8
    assert len(applied.created) == 20


async def test_creates_keep_the_order_of_the_plan() -> None:
    rig = Rig()
    await rig.act(creates=create_pods(5))

    assert [call.key.name for call in rig.cluster.asked("create")] == [f"mnist-worker-{n}" for n in range(5)]


async def test_what_was_created_is_told_in_the_order_of_the_plan_whatever_ends_first() -> None:
    rig = Rig()

    async def later_ones_first(call: Call) -> None:
        await asyncio.sleep(10.0 - int(call.key.name[-1]))

    rig.cluster.before = later_ones_first
    applied = await rig.act(creates=create_pods(7))

    assert applied.created == list(create_pods(7))


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Forbidden("exceeded quota: gpu", code=403), id="quota"),
        pytest.param(Invalid("spec.containers: Required value", code=422), id="invalid"),
        pytest.param(NotFound('namespaces "ml" not found', code=404), id="no namespace"),
    ],
)
async def test_the_first_refusal_ends_the_creates(refusal: ApiError) -> None:
    rig = Rig()
    rig.cluster.before = raising("create", refusal, name="mnist-worker-1")
    applied = await rig.act(creates=create_pods(20))

    assert [call.key.name for call in rig.cluster.asked("create")] == [f"mnist-worker-{n}" for n in range(3)]
    assert applied.failures == [Failure(create_pods(2)[1], refusal.message)]
    assert applied.created == [create_pods(3)[0], create_pods(3)[2]]


async def test_a_namespace_without_quota_is_asked_once() -> None:
    rig = Rig()
    rig.cluster.before = raising("create", *[Forbidden("exceeded quota")] * 1000)
    await rig.act(creates=create_pods(500))

    assert len(rig.cluster.asked("create")) == 1


NO_ANSWER = pytest.param(Unreachable("no answer"), id="no answer")
ANSWERS: list[Any] = [
    pytest.param(ServerError("boom", code=500), id="server error"),
    pytest.param(TooManyRequests("slow down"), id="too many requests"),
    pytest.param(Conflict("quota was updated meanwhile", code=409), id="lost race"),
    pytest.param(Unauthorized("token expired", code=401), id="token expired"),
]
PASSING = [NO_ANSWER, *ANSWERS]


OF_A_WEBHOOK = pytest.param(ApiError("not on a holiday", code=405), id="an unusual code")
"""A webhook may refuse with any code."""


@pytest.mark.parametrize("error", [*ANSWERS, OF_A_WEBHOOK])
async def test_an_answer_to_a_create_that_may_pass_is_a_failure_with_a_cause(error: Trainmaster) -> None:
    rig = Rig()
    rig.cluster.before = raising("create", error)

    applied = await rig.act(creates=create_pods(3))

    assert [(f.error, f.cause) for f in applied.failures] == [(str(error), error)]
    assert len(rig.cluster.asked("create")) == 1


@pytest.mark.parametrize("error", [Unreachable("the connection was cut"), NotLeading("the lease is over")])
async def test_a_create_without_an_answer_is_no_failure_of_the_job(error: Trainmaster) -> None:
    """The pod may have been created, or not even been asked for."""
    rig = Rig()
    rig.cluster.before = raising("create", error)

    with pytest.raises(type(error)):
        await rig.act(creates=create_pods(3))


async def test_after_a_passing_error_the_rest_of_a_large_batch_is_not_tried() -> None:
    rig, error = Rig(), ServerError("failed calling webhook", code=500)

    async def stop_halfway(call: Call) -> None:
        if len(rig.cluster.asked("create")) > 100:
            raise error

    rig.cluster.before = stop_halfway
    applied = await rig.act(creates=create_pods(500))

    assert 1 <= len(applied.failures) <= IN_FLIGHT


@pytest.mark.parametrize("error", ANSWERS)
async def test_after_a_passing_error_no_other_batch_is_begun(error: Trainmaster) -> None:
    rig = Rig()

    async def slow_or_failing(call: Call) -> None:
        if call.key.name == "mnist-worker-1":
            raise error
        await asyncio.sleep(5)

    rig.cluster.before = slow_or_failing
    applied = await rig.act(creates=create_pods(20))

    assert [failure.cause for failure in applied.failures] == [error]
    assert len(rig.cluster.asked("create")) == 3
    assert rig.cluster.find(POD, Key("ml", "mnist-worker-2")) is not None
    assert not rig.barrier.is_open(JOB.uid)


@pytest.mark.parametrize("error", PASSING)
async def test_a_passing_error_of_a_delete_is_raised_and_nothing_is_created(error: Trainmaster) -> None:
    rig = Rig("mnist-worker-0")
    rig.cluster.before = raising("delete", error)
    with pytest.raises(type(error)):
        await rig.act(deletes=(delete_pod(),), creates=create_pods(3))

    assert rig.cluster.asked("create") == []


# --- names that are taken ---


async def test_a_name_that_is_taken_by_our_own_pod_is_no_failure_and_the_store_is_waited_for() -> None:
    rig = Rig()
    ours = pod_json()
    ours["metadata"]["labels"] |= MANAGED_BY
    stored = rig.cluster.put(POD, ours)
    applied = await rig.act(creates=(create_pod(),))

    assert applied == Applied()
    assert not rig.barrier.is_open(JOB.uid)
    rig.pods.advance(int(stored["metadata"]["resourceVersion"]))
    assert rig.barrier.is_open(JOB.uid)


async def test_our_own_pod_that_the_watch_cannot_show_gets_our_label() -> None:
    rig = Rig()
    rig.cluster.put(POD, pod_json())
    applied = await rig.act(creates=(create_pod(),))
    stored = rig.cluster.find(POD, WORKER)

    assert applied == Applied()
    assert stored is not None
    assert stored["metadata"]["labels"].items() >= MANAGED_BY.items()
    assert not rig.barrier.is_open(JOB.uid)
    rig.pods.advance(int(stored["metadata"]["resourceVersion"]))
    assert rig.barrier.is_open(JOB.uid)


async def test_our_own_pod_that_may_not_get_our_label_is_said_with_the_command_that_helps() -> None:
    rig = Rig()
    rig.cluster.put(POD, pod_json())
    rig.cluster.before = raising("patch", Forbidden("pods is forbidden", code=403))
    applied = await rig.act(creates=(create_pod(),))

    (failure,) = applied.failures
    command = "kubectl label pods mnist-worker-0 app.kubernetes.io/managed-by=trainmaster"
    assert failure.error == (
        f"it exists without the label that we watch by, and gets none: pods is forbidden; {command}"
    )


ORPHAN = pod_json() | {"metadata": {"name": "mnist-worker-0", "namespace": "ml", "uid": "x"}}
ENDING = pod_json(owner=toy_json(uid="first"), deleting=True)
ENDING["metadata"]["deletionGracePeriodSeconds"] = 30
HELD_LOOSELY = pod_json()
HELD_LOOSELY["metadata"]["ownerReferences"][0]["controller"] = False


@pytest.mark.parametrize(
    ("taken_by", "said"),
    [
        pytest.param(pod_json(owner=toy_json("other")), "Toy other (uid-of-other); delete it", id="another job"),
        pytest.param(
            pod_json(owner=toy_json(uid="first")),
            "waits for the pod of the deleted Toy mnist; if it stays: kubectl delete pod mnist-worker-0",
            id="an earlier incarnation",
        ),
        pytest.param(ENDING, "waits for the pod of the deleted Toy mnist, which has up to 30 s to end", id="that ends"),
        pytest.param(ORPHAN, "has no owner; delete it", id="nobody"),
        pytest.param(HELD_LOOSELY, "has no owner; delete it", id="owned but not controlled by us"),
    ],
)
async def test_a_name_that_is_taken_by_a_stranger_is_a_failure_that_says_whose(
    taken_by: dict[str, Any], said: str
) -> None:
    rig = Rig()
    rig.cluster.put(POD, taken_by)
    applied = await rig.act(creates=create_pods(5))

    (failure,) = applied.failures
    assert failure.action == create_pod()
    assert said in failure.error
    assert len(rig.cluster.asked("create")) == 1


async def test_a_name_that_is_free_again_when_we_look_is_tried_again() -> None:
    rig = Rig()
    rig.cluster.put(POD, pod_json())

    async def vanishing(call: Call) -> None:
        if call.verb == "get":
            rig.cluster.take(POD, WORKER)

    rig.cluster.before = vanishing
    with pytest.raises(Conflict, match="pods ml/mnist-worker-0 went away while it was being created"):
        await rig.act(creates=(create_pod(),))


# --- deletes ---


async def test_deletes_name_the_incarnation_and_leave_its_grace_period() -> None:
    rig = Rig("mnist-worker-0")
    applied = await rig.act(deletes=(delete_pod(),))

    (call,) = rig.cluster.asked("delete")
    assert call.options == {"uid": "uid-of-mnist-worker-0", "grace": None}
    assert applied.deleted == [delete_pod()]


async def test_deletes_go_a_few_at_once_and_before_the_creates() -> None:
    names = [f"old-{n}" for n in range(20)]
    rig = Rig(*names)
    rig.cluster.before = waiting("delete", 1.0)
    await rig.act(deletes=tuple(map(delete_pod, names)), creates=create_pods(1))

    assert batches(rig.cluster.asked("delete")) == [8, 8, 4]
    assert [call.verb for call in rig.cluster.calls[-2:]] == ["delete", "create"]
    assert rig.cluster.calls[-1].at == rig.cluster.calls[0].at + 3


async def test_after_an_error_that_may_pass_nothing_else_is_begun() -> None:
    names = [f"old-{n}" for n in range(20)]
    rig = Rig(*names)

    async def overloaded(call: Call) -> None:
        await waiting("delete", 1.0)(call)
        if call.key.name == "old-3":
            raise Unreachable("no answer")

    rig.cluster.before = overloaded
    with pytest.raises(Unreachable):
        await rig.act(deletes=tuple(map(delete_pod, names)), creates=create_pods(1))

    assert len(rig.cluster.asked("delete")) <= 16
    assert rig.cluster.asked("create") == []


async def test_what_is_gone_need_not_be_deleted() -> None:
    rig = Rig()
    applied = await rig.act(deletes=(delete_pod(),), creates=create_pods(1))

    assert applied == Applied(created=list(create_pods(1)))


async def test_that_the_job_is_not_found_is_not_believed_and_its_deletion_is_tried_again() -> None:
    """An API server that starts may answer so for a custom resource. No event follows that would bring about the next
    pass; if the job is gone, the watch says so."""
    rig = Rig()
    rig.cluster.before = raising("delete", NotFound("the server could not find the requested resource: not found"))
    delete = Delete(TOY, JOB.key, JOB.uid, "it ended 60 seconds ago")
    with pytest.raises(Conflict, match="not found"):
        await rig.act(deletes=(delete,))

    assert rig.barrier.is_open(JOB.uid)


async def test_another_incarnation_is_left_alone_and_the_pass_is_tried_again() -> None:
    """No event may follow that would bring about the next pass."""
    rig = Rig("mnist-worker-0")
    with pytest.raises(Conflict):
        await rig.act(deletes=(delete_pod(uid="first"),), creates=create_pods(1))

    assert rig.cluster.find(POD, WORKER) is not None
    assert rig.cluster.asked("create") == []


async def test_a_delete_that_we_may_not_do_is_a_failure_and_nothing_is_created() -> None:
    rig = Rig("mnist-worker-0", "mnist-worker-1")
    rig.cluster.before = raising("delete", Forbidden("cannot delete pods"), name="mnist-worker-0")
    deletes = (delete_pod("mnist-worker-0"), delete_pod("mnist-worker-1"))
    applied = await rig.act(deletes=deletes, creates=create_pods(3))

    assert applied == Applied(deleted=[deletes[1]], failures=[Failure(deletes[0], "cannot delete pods")])
    assert rig.cluster.asked("create") == []


@pytest.mark.parametrize("versioned", [pytest.param(True, id="with version"), pytest.param(False, id="without")])
async def test_after_a_delete_the_store_has_to_catch_up(versioned: bool) -> None:
    rig = Rig("mnist-worker-0")
    rig.cluster.deletes_have_versions = versioned
    await rig.act(deletes=(delete_pod(),))

    assert not rig.barrier.is_open(JOB.uid)
    rig.pods.remove(a_pod(version=1003))
    assert rig.barrier.is_open(JOB.uid)


# --- status ---


async def test_the_status_patch_holds_the_difference_and_the_job_it_was_planned_for() -> None:
    rig = Rig()
    job = rig.stored_job()
    old = {"phase": "Created", "active": 1, "gone": "x", "counts": {"worker": 1, "ps": 1}}
    new = {"phase": "Running", "active": 1, "counts": {"worker": 2, "ps": 1}}

    assert await rig.executor.store_status(TOY, job, old, Plan(status=new))

    (call,) = rig.cluster.asked("patch")
    assert (call.resource, call.key, call.options) == (TOY, KEY, {"subresource": "status", "strict": True})
    assert call.body == {
        "metadata": {"uid": "uid-of-mnist", "resourceVersion": str(job.resource_version)},
        "status": {"phase": "Running", "gone": None, "counts": {"worker": 2}},
    }


@pytest.mark.parametrize(
    "plan", [pytest.param(Plan(), id="stays as it is"), pytest.param(Plan(status={"phase": "Running"}), id="equal")]
)
async def test_nothing_is_patched_when_nothing_differs(plan: Plan) -> None:
    rig = Rig()

    assert not await rig.executor.store_status(TOY, JOB, {"phase": "Running"}, plan)
    assert rig.cluster.calls == []


async def test_after_a_status_patch_the_store_has_to_catch_up() -> None:
    rig = Rig()
    await rig.executor.store_status(TOY, rig.stored_job(), {}, Plan(status={"phase": "Running"}))

    assert not rig.barrier.is_open(JOB.uid)
    rig.jobs.put(rig.stored_job())
    assert rig.barrier.is_open(JOB.uid)


@pytest.mark.parametrize(
    "job",
    [pytest.param(a_toy(version=7), id="an older version"), pytest.param(a_toy(uid="first"), id="another incarnation")],
)
async def test_the_status_of_a_job_that_is_not_the_planned_one_is_not_stored(job: JobView) -> None:
    rig = Rig()
    with pytest.raises(Conflict):
        await rig.executor.store_status(TOY, job, {}, Plan(status={"phase": "Running"}))

    assert rig.barrier.is_open(job.uid)


async def test_a_status_that_has_no_place_is_tried_again_and_the_crd_is_suspected() -> None:
    rig = Rig()
    rig.cluster.take(TOY, KEY)

    with pytest.raises(Conflict, match="if the job exists, its CRD has no status"):
        await rig.executor.store_status(TOY, JOB, {}, Plan(status={"phase": "Running"}))


# --- what is counted ---


def actions(verb: str, resource: str = "pods") -> float:
    return REGISTRY.get_sample_value("trainmaster_actions_total", {"verb": verb, "resource": resource}) or 0.0


async def test_what_was_done_is_counted_and_what_was_refused_is_not() -> None:
    rig = Rig("old-0")
    rig.cluster.before = raising("create", Forbidden("quota"), name="mnist-worker-1")
    created, deleted = actions("create"), actions("delete")
    await rig.act(deletes=(delete_pod("old-0"), delete_pod("old-1")), creates=create_pods(3))

    assert (actions("create") - created, actions("delete") - deleted) == (2, 1)
