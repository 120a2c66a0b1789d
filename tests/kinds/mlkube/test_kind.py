"""The life of an MxJob: names, Jobs, a result, a clean-up, an end."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import NOW, STAMP, Json
from tests.kinds.mlkube.build import (
    Child,
    a_begun,
    a_job,
    a_mxjob,
    a_pod,
    a_service,
    a_spec,
    condition_of,
    name_of,
    places_of,
    plan_of,
    running,
    status_of,
)
from trainmaster.core.ids import JOB, SERVICE, Key
from trainmaster.core.plan import BRIEF, LAZY, Plan
from trainmaster.kinds.base import Settings
from trainmaster.kinds.mlkube.kind import FirstMxJobKind, MxJobKind

COMPLETE = {"Complete": ("CompletionsReached", "Reached expected number of succeeded pods")}
PLACES = [("scheduler", 0), ("server", 0), ("server", 1), ("worker", 0), ("worker", 1), ("worker", 2)]


def stored(job: Json, plan: Plan) -> Json:
    """The job after the status of a plan was stored."""
    return {**job, "status": status_of(plan)}


def names(plan: Plan) -> set[str]:
    return {create.key.name for create in plan.creates}


def complete(job: Json, *places: tuple[str, int]) -> list[Child]:
    """The Jobs of these replicas, complete."""
    return [a_job(job, *place, succeeded=1, conditions=COMPLETE) for place in places]


def with_complete(job: Json, *places: tuple[str, int]) -> list[Child]:
    """All replicas run, but for these, which are complete."""
    return running(job, *complete(job, *places), without=places)


def with_dead(job: Json, *places: tuple[str, int], code: int = 1) -> list[Child]:
    """All replicas run, but for these, whose pods have died."""
    dead: list[Child] = []
    for place in places:
        dead += [a_job(job, *place), a_pod(job, *place, code=code, phase="Failed")]
    return running(job, *dead, without=places)


# --- the beginning -------------------------------------------------------------------------------


def test_a_new_job_gets_all_its_jobs_at_once_by_names_that_any_later_plan_would_give() -> None:
    job = a_mxjob()

    first = plan_of(job)

    assert not first.status_first
    assert status_of(first)["phase"] == "Creating"
    assert status_of(first)["state"] == "Unknown"
    assert status_of(first)["startTime"] == STAMP
    assert len(first.creates) == 7
    assert all(status_of(first)["runtimeId"] in create.key.name for create in first.creates)
    assert names(plan_of(stored(job, first))) == names(plan_of(job)) == names(first)


def test_an_id_of_the_user_is_stored_before_the_first_object_is_created() -> None:
    job = a_mxjob(RuntimeId="mine")

    first = plan_of(job)
    second = plan_of(stored(job, first))

    assert first.status_first
    assert first.creates == ()
    assert len(second.creates) == 7
    assert all("-mine-" in create.key.name for create in second.creates)


def test_an_edit_before_the_id_is_stored_gives_other_names_and_the_old_jobs_are_removed_first() -> None:
    """ps-lite counts its processes when it starts: those of a job with two workers must not meet those of three."""
    before, after = a_mxjob(workers=2), a_mxjob(workers=3)
    old = a_job(before, "worker", name=next(name for name in names(plan_of(before)) if "-worker-" in name))

    plan = plan_of(after, [old])

    assert names(plan_of(before)).isdisjoint(names(plan_of(after)))
    assert plan.creates == ()
    assert [patch.key for patch in plan.patches] == [old.key]


def test_a_job_whose_replicas_run_before_its_first_status_has_both_events() -> None:
    job = a_mxjob()
    begun = stored(job, plan_of(job))

    plan = plan_of(job, running(begun))

    assert (status_of(plan)["phase"], status_of(plan)["runtimeId"]) == ("Running", begun["status"]["runtimeId"])
    assert [event.reason for event in plan.events] == ["MxJobCreating", "MxJobRunning"]


@pytest.mark.parametrize("code", [1, 137], ids=["judged", "started again"])
def test_a_job_that_fails_before_its_first_status_gets_the_status_of_any_other(code: int) -> None:
    job = a_mxjob()
    begun = stored(job, plan_of(job))

    plan = plan_of(job, with_dead(begun, ("worker", 0), code=code))

    assert plan.status_first
    assert status_of(plan) == status_of(plan_of(begun, with_dead(begun, ("worker", 0), code=code)))


def test_a_job_whose_jobs_are_all_there_waits_for_them_to_run() -> None:
    job = a_begun()
    children: list[Child] = [a_service(job), *(a_job(job, *place) for place in PLACES)]

    plan = plan_of(job, children)

    assert (plan.creates, plan.deletes, plan.patches) == ((), (), ())
    assert status_of(plan)["phase"] == "Creating"
    assert plan_of(stored(job, plan), children).is_quiet


def test_it_is_running_when_all_replicas_are_and_says_so_everywhere() -> None:
    job = a_begun()
    waiting = plan_of(job, running(job, a_job(job, "worker", 2), without=[("worker", 2)]))
    plan = plan_of(job, running(job))

    assert status_of(waiting)["phase"] == "Creating"
    assert (status_of(plan)["phase"], status_of(plan)["state"]) == ("Running", "Running")
    assert condition_of(plan, "Ready")[:2] == ("True", "AllReplicasRunning")
    assert [event.reason for event in plan.events] == ["MxJobRunning"]
    assert status_of(plan)["replicaStatuses"] == [
        {"Mx_replica_type": "SCHEDULER", "state": "Running", "ReplicasStates": {"Running": 1}},
        {"Mx_replica_type": "SERVER", "state": "Running", "ReplicasStates": {"Running": 2}},
        {"Mx_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 3}},
    ]
    assert plan_of(stored(job, plan), running(job)).is_quiet


def test_a_replica_that_has_succeeded_has_run() -> None:
    job = a_begun(workers=2)

    assert status_of(plan_of(job, with_complete(job, ("worker", 0))))["phase"] == "Running"


@pytest.mark.parametrize("phase", ["Creating", "Running"])
def test_a_job_goes_on_where_another_process_left_it(phase: str) -> None:
    """The ancestor called every job Failed that it found in Creating or Done after a restart."""
    job = a_begun(phase, "Running" if phase == "Running" else "Unknown")

    assert status_of(plan_of(job, running(job)))["phase"] == "Running"


@pytest.mark.parametrize("given", [{}, {"backoffLimit": 0}])
@pytest.mark.parametrize("phase", ["Creating", "Running"])
def test_jobs_that_mxnet_operator_left_are_not_missed(phase: str, given: Json) -> None:
    """Its Jobs are not ours, and hold the names: that these are taken is what its user is told."""
    job = a_mxjob(RuntimeId="mine", status={"phase": phase, "state": ""}, **given)

    first = plan_of(job)
    second = plan_of(stored(job, first))

    assert status_of(first)["runtimeId"] == "mine"
    assert names(second) == {f"digits-{role}-mine-{index}" for role, index in PLACES}
    assert "restarts" not in stored(job, first)["status"]


@pytest.mark.parametrize("phase", ["Creating", "Running"])
def test_a_service_that_was_deleted_is_created_again(phase: str) -> None:
    job = a_begun(phase)

    plan = plan_of(job, [child for child in running(job) if child != a_service(job)])

    assert [(c.resource, c.key.name) for c in plan.creates] == [(SERVICE, name_of(job, "scheduler"))]


def test_a_job_that_was_deleted_before_all_have_run_is_created_again() -> None:
    job = a_begun("Creating")

    jobs = plan_of(job, running(job, without=[("server", 1)]))

    assert [(c.resource, c.key.name) for c in jobs.creates] == [(JOB, name_of(job, "server", 1))]


LONE = [a_spec("SCHEDULER"), a_spec("SERVER"), a_spec("WORKER", 2, restartScope="Pod")]


def test_a_job_that_is_on_its_way_out_when_its_success_is_seen_has_succeeded() -> None:
    """A time to live of no seconds: its controller is as fast as we are."""
    job = a_begun("Running", "Running")
    leaving = a_job(job, "worker", 1, succeeded=1, conditions={"Complete": ("", "")}, deleting=True)

    plan = plan_of(job, running(job, leaving, without=[("worker", 1)]))

    assert status_of(plan)["done"] == {"WORKER": [1]}
    assert "restarts" not in status_of(plan)


@pytest.mark.parametrize("given", [pytest.param({"workers": 2}, id="group"), pytest.param({"specs": LONE}, id="alone")])
@pytest.mark.parametrize("place", [("worker", 1), ("scheduler", 0)])
def test_the_job_of_a_replica_that_has_succeeded_is_not_missed(place: tuple[str, int], given: Json) -> None:
    """Somebody tidies up, or a policy gives every Job of the namespace a time to live."""
    job = a_begun("Running", "Running", **given)
    ended = plan_of(job, with_complete(job, place))
    job = stored(job, ended)

    plan = plan_of(job, running(job, without=[place]))
    others = [each for each in places_of(job) if each not in (place, ("server", 0))]
    last = plan_of(job, running(job, *complete(job, *others), without=[place, *others]))

    assert status_of(ended)["done"] == {place[0].upper(): [place[1]]}
    assert plan.is_quiet
    assert status_of(last)["state"] == "Succeeded"
    assert "done" not in status_of(last)


def test_a_job_that_is_not_in_the_spec_any_more_is_suspended_and_deleted() -> None:
    job = a_begun("Running", "Running", workers=2)

    first = plan_of(job, [*running(job), a_job(job, "worker", 2), a_service(job, "digits-server-1kkf-0")])
    second = plan_of(job, [*running(job), a_job(job, "worker", 2, suspend=True)])

    assert [(p.key.name, p.body) for p in first.patches] == [(name_of(job, "worker", 2), {"spec": {"suspend": True}})]
    assert [(d.resource, d.key.name) for d in first.deletes] == [(SERVICE, "digits-server-1kkf-0")]
    assert [(d.resource, d.key.name) for d in second.deletes] == [(JOB, name_of(job, "worker", 2))]


def test_a_change_of_counters_alone_may_wait() -> None:
    job = a_begun()
    job = stored(job, plan_of(job, [a_service(job), *(a_job(job, *place) for place in PLACES)]))
    one: list[Child] = [a_pod(job, "server", 0)]

    some = plan_of(job, [a_service(job), *(a_job(job, *place) for place in PLACES), *one])
    every = plan_of(job, running(job))
    ended = plan_of(stored(job, every), with_complete(job, ("server", 0)))

    assert (some.lazy, every.lazy) == (LAZY, 0.0)
    assert ended.lazy == BRIEF  # nobody else remembers it when the Job of that server goes


def test_a_bad_edit_of_a_running_job_is_said_and_stops_nothing() -> None:
    job = a_begun("Running", "Running")
    job["spec"]["replicaSpecs"][0]["replicas"] = 2

    plan = plan_of(job, running(job))

    assert status_of(plan)["phase"] == "Running"
    assert condition_of(plan, "Accepted")[:2] == ("False", "InvalidSpec")
    assert (plan.creates, plan.deletes) == ((), ())


def test_a_new_job_that_cannot_be_run_says_why_and_can_be_repaired() -> None:
    job = a_mxjob()
    good = job["spec"]["replicaSpecs"][0]["replicas"]
    job["spec"]["replicaSpecs"][0]["replicas"] = 2
    bad = stored(job, plan_of(job))
    assert plan_of(bad).is_quiet

    bad["spec"]["replicaSpecs"][0]["replicas"] = good
    repaired = plan_of(bad)

    assert condition_of(repaired, "Accepted")[0] == "True"
    assert status_of(repaired)["phase"] == "Creating"


# --- the verdict ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        pytest.param([("scheduler", 0)], "Running", id="the scheduler alone"),
        pytest.param([("worker", 0), ("worker", 1), ("worker", 2)], "Running", id="the workers alone"),
        pytest.param([("server", 0), ("server", 1)], "Running", id="the servers alone"),
        pytest.param([("scheduler", 0), ("worker", 0), ("worker", 1)], "Running", id="all but one worker"),
        pytest.param(
            [("scheduler", 0), ("worker", 0), ("worker", 1), ("worker", 2)], "Succeeded", id="scheduler and workers"
        ),
        pytest.param(PLACES, "Succeeded", id="everybody"),
    ],
)
def test_a_dist_job_succeeds_when_scheduler_and_workers_have(ended: list[tuple[str, int]], state: str) -> None:
    job = a_begun("Running", "Running")

    assert status_of(plan_of(job, with_complete(job, *ended)))["state"] == state


@pytest.mark.parametrize("place", PLACES)
def test_any_replica_that_fails_for_good_fails_the_job(place: tuple[str, int]) -> None:
    job = a_begun("Running", "Running")

    plan = plan_of(job, with_dead(job, place))

    assert (status_of(plan)["phase"], status_of(plan)["state"]) == ("CleanUp", "Failed")
    assert status_of(plan)["reason"].startswith(f"{place[0]}-{place[1]}: pod {name_of(job, *place)}-aaaaa failed")


def test_a_server_that_is_lost_when_all_is_done_is_no_failure_though_no_try_is_left() -> None:
    job = a_begun("Running", "Running", backoffLimit=0)
    ended = [("scheduler", 0), ("worker", 0), ("worker", 1), ("worker", 2)]
    lost: list[Child] = [a_job(job, "server"), a_pod(job, "server", code=143, phase="Failed")]

    plan = plan_of(job, running(job, *complete(job, *ended), *lost, without=[*ended, ("server", 0)]))

    assert status_of(plan)["state"] == "Succeeded"


def test_a_failure_counts_before_a_success() -> None:
    """With the ancestor, the scheduler's success hid the failure of a worker."""
    job = a_begun("Running", "Running")
    ended = [("scheduler", 0), ("worker", 0), ("worker", 1)]
    dead: list[Child] = [a_job(job, "worker", 2), a_pod(job, "worker", 2, code=1, phase="Failed")]

    plan = plan_of(job, running(job, *complete(job, *ended), *dead, without=[*ended, ("worker", 2)]))

    assert status_of(plan)["state"] == "Failed"


@pytest.mark.parametrize(("code", "state"), [(0, "Succeeded"), (1, "Failed")])
def test_a_local_job_ends_with_its_worker(code: int, state: str) -> None:
    job = a_begun("Running", "Running", mode="local")
    pod = a_pod(job, "worker", code=code, phase="Failed" if code else "Succeeded")

    assert status_of(plan_of(job, [a_job(job, "worker"), pod]))["state"] == state


def test_the_verdict_is_stored_before_anything_is_stopped() -> None:
    job = a_begun("Running", "Running")

    plan = plan_of(job, with_dead(job, ("worker", 1)))

    assert plan.status_first
    assert (plan.creates, plan.deletes, plan.patches) == ((), (), ())
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "MxJobFailed")]
    assert condition_of(plan, "Ready")[:2] == ("False", "Failed")
    assert status_of(plan)["completionTime"] == STAMP


@pytest.mark.parametrize(("seconds", "state"), [(59, "Running"), (60, "Failed")])
def test_a_deadline_is_counted_from_the_start(seconds: int, state: str) -> None:
    job = a_begun("Running", "Running", activeDeadlineSeconds=60)

    plan = plan_of(job, running(job), now=NOW + timedelta(seconds=seconds))

    assert status_of(plan)["state"] == state
    if state == "Failed":
        assert status_of(plan)["reason"] == "the job has not ended within 60 seconds (activeDeadlineSeconds)"
    else:
        assert plan.requeue_after == 1


# --- the clean-up --------------------------------------------------------------------------------


def judged(state: str, **given: Any) -> Json:
    """A job whose verdict is stored."""
    reason = {"reason": "worker-0: died"} if state == "Failed" else {}
    return a_begun("CleanUp", state, status={"completionTime": STAMP, **reason}, **given)


def test_a_failed_job_stops_what_still_runs_and_keeps_what_has_ended() -> None:
    job = judged("Failed")
    children = [*with_dead(job, ("worker", 0)), *complete(job, ("server", 7))]

    plan = plan_of(job, children)

    assert [(p.resource, p.key.name, p.body) for p in plan.patches] == [
        (JOB, name_of(job, *place), {"spec": {"suspend": True}}) for place in PLACES
    ]
    assert {p.version for p in plan.patches} == {200}
    assert [(d.resource, d.key.name) for d in plan.deletes] == [(SERVICE, name_of(job, "scheduler"))]
    assert plan.status is None


@pytest.mark.parametrize("type_", ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"])
def test_a_job_that_comes_to_its_end_is_not_stopped_on_its_way(type_: str) -> None:
    job = judged("Failed", mode="local")

    plan = plan_of(job, [a_job(job, "worker", conditions={type_: ("", "")})])

    assert plan.patches == ()
    assert status_of(plan)["phase"] == "Done"


def test_it_is_done_when_all_jobs_have_stopped() -> None:
    job = judged("Failed")

    plan = plan_of(job, [a_job(job, *place, suspend=True) for place in PLACES])

    assert (status_of(plan)["phase"], status_of(plan)["state"]) == ("Done", "Failed")
    assert status_of(plan)["reason"] == "worker-0: died"
    assert condition_of(plan, "Finished") == ("True", "Failed", "worker-0: died")


def test_the_states_of_replicas_when_the_job_failed_stay_in_the_status() -> None:
    job = a_begun("Running", "Running")
    verdict = stored(job, plan_of(job, with_dead(job, ("worker", 0))))

    plan = plan_of(verdict, [a_job(job, *place, suspend=True) for place in PLACES])

    assert status_of(plan)["replicaStatuses"][2] == {
        "Mx_replica_type": "WORKER",
        "state": "Failed",
        "ReplicasStates": {"Failed": 1, "Running": 2},
    }


def test_servers_of_a_success_get_time_to_end_by_themselves() -> None:
    job = judged("Succeeded")
    children = with_complete(job, ("scheduler", 0), ("worker", 0), ("worker", 1), ("worker", 2))

    early = plan_of(job, children, now=NOW + timedelta(seconds=29))
    late = plan_of(job, children, now=NOW + timedelta(seconds=30))

    assert (early.is_quiet, early.requeue_after) == (True, 1)
    assert [p.key.name for p in late.patches] == [name_of(job, "server", 0), name_of(job, "server", 1)]


def test_a_success_is_done_as_soon_as_all_replicas_have_ended() -> None:
    job = judged("Succeeded")

    plan = plan_of(job, [a_service(job), *complete(job, *PLACES)])

    assert (status_of(plan)["phase"], status_of(plan)["state"]) == ("Done", "Succeeded")
    assert status_of(plan).get("reason", "") == ""
    assert condition_of(plan, "Finished") == ("True", "Succeeded", "job digits has succeeded")
    assert [entry["state"] for entry in status_of(plan)["replicaStatuses"]] == ["Succeeded"] * 3
    assert (plan.patches, [d.resource for d in plan.deletes]) == ((), [SERVICE])


def test_the_policy_all_takes_every_job_and_the_service() -> None:
    job = judged("Failed", cleanPodPolicy="All")

    plan = plan_of(job, with_dead(job, ("worker", 0)))
    gone = plan_of(job, [a_job(job, "worker", 1, deleting=True)])

    assert {(d.resource, d.key.name) for d in plan.deletes} == {
        (SERVICE, name_of(job, "scheduler")),
        *((JOB, name_of(job, *place)) for place in PLACES),
    }
    assert plan.status is None
    assert gone.is_quiet  # one is still on its way out
    assert status_of(plan_of(job))["phase"] == "Done"


def test_the_policy_none_touches_nothing() -> None:
    job = a_begun("Running", "Running", cleanPodPolicy="None")

    verdict = plan_of(job, with_dead(job, ("worker", 0)))
    done = stored(job, verdict)

    assert (status_of(verdict)["phase"], status_of(verdict)["state"]) == ("Done", "Failed")
    assert plan_of(done, with_dead(job, ("worker", 0))).is_quiet


def test_a_port_is_given_back_at_the_end() -> None:
    job = judged("Succeeded")
    job["status"]["ports"] = {"scheduler-0": {"9091": 20_001}}

    assert "ports" not in status_of(plan_of(job, settings=Settings(shared_network=True)))


# --- after the end -------------------------------------------------------------------------------


def done(state: str = "Succeeded", **given: Any) -> Json:
    return a_begun("Done", state, status={"completionTime": STAMP}, **given)


@pytest.mark.parametrize("phase", ["Done", "Failed"])
def test_an_ended_job_stays_as_it_is_also_one_of_the_ancestors(phase: str) -> None:
    job = a_mxjob(status={"phase": phase, "state": "Succeeded"})

    assert plan_of(job).is_quiet
    assert plan_of(job, complete(job, *places_of(job))).is_quiet


@pytest.mark.parametrize(("policy", "patched", "deleted"), [("Running", 1, 0), ("All", 0, 1), ("None", 0, 0)])
def test_what_turns_up_after_the_end_is_cleaned_up(policy: str, patched: int, deleted: int) -> None:
    job = done(cleanPodPolicy=policy)

    plan = plan_of(job, [a_job(job, "worker", 0)])

    assert (len(plan.patches), len(plan.deletes)) == (patched, deleted)
    assert plan.creates == ()


def test_a_job_goes_when_its_time_is_over() -> None:
    job = done(ttlSecondsAfterFinished=60)

    early = plan_of(job, now=NOW + timedelta(seconds=20))
    late = plan_of(job, now=NOW + timedelta(seconds=60))

    assert (early.is_quiet, early.requeue_after) == (True, 40)
    (delete,) = late.deletes
    assert (delete.resource, delete.key, delete.uid) == (MxJobKind.resource, Key("ml", "digits"), "uid-of-digits")


def test_a_job_that_turns_up_late_is_stopped_before_the_job_goes() -> None:
    job = done(ttlSecondsAfterFinished=60)

    plan = plan_of(job, [a_job(job, "worker", 0)], now=NOW + timedelta(seconds=60))

    assert (len(plan.patches), plan.deletes) == (1, ())


# --- words ---------------------------------------------------------------------------------------


def test_both_groups_are_one_kind() -> None:
    new, first = MxJobKind(Settings()), FirstMxJobKind(Settings())

    assert (new.resource.group, first.resource.group) == ("mxnet.mlkube.io", "mlkube.io")
    assert (new.name, first.name) == ("mxjob.mxnet.mlkube.io", "mxjob.mlkube.io")
    assert new.children == first.children == (JOB,)


def test_actions_have_events() -> None:
    kind = MxJobKind(Settings())

    done_, failed = kind.action_event("create", JOB, ["a", "b"]), kind.action_event("delete", JOB, ["a"], "no")

    assert (done_.type, done_.reason, done_.message) == ("Normal", "SuccessfulCreate", "Created job: a, b")
    assert (failed.type, failed.reason, failed.message) == ("Warning", "FailedDelete", "Failed to delete job a: no")
