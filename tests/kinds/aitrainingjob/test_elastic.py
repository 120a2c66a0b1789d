"""Elastic roles of an AITrainingJob (docs/elastic.md): how many pods there are, how many are enough, what the loss of a
node does, and the file of members."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    Child,
    Json,
    WholeChild,
    a_container,
    a_node,
    a_pod,
    a_replica,
    a_service,
    a_template,
    after,
    an_aitj,
    child_labels,
    names_of,
    owner_reference,
    plan_of,
    view_of_child,
    with_spec,
    with_status,
)
from trainmaster.core.ids import CONFIG_MAP, POD, SERVICE, Key
from trainmaster.core.plan import Plan
from trainmaster.core.view import ChildView, NodeView, PodView
from trainmaster.kinds.base import Settings

LATER = NOW + timedelta(seconds=10)
LOST: dict[str, Any] = {
    "phase": "Failed",
    "exit_code": None,
    "containers": {},
    "reason": "NodeLost",
    "message": "node is gone",
}


def elastic(policy: str = "Auto", replicas: int = 2, *, scale: int | None = None, **fields: Any) -> Json:
    """A server, and workers whose number may change."""
    spec = {} if scale is None else {"elasticReplicas": scale}
    return an_aitj(worker=a_replica(replicas, edlPolicy=policy, **fields), ps=1, spec=spec)


def status_of(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def said(job: Json) -> tuple[str, str]:
    entry = job["status"]["conditions"][-1]
    return job["status"]["phase"], entry["message"]


def created(job: Json, role: str = "worker") -> list[str]:
    return [name for name in names_of(plan_of(job).creates, POD) if f"-{role}-" in name]


def pod(job: Json, index: int, phase: str = "Running", *, attempt: int = 0, **fields: Any) -> PodView:
    labels = {**child_labels(job, "worker", index), "RestartCount": str(attempt)}
    uid = f"uid-of-worker-{index}-{attempt}"
    return a_pod(job, "worker", index, labels=labels, uid=uid, **{"phase": phase, **fields})


def workers(job: Json, *phases: str) -> list[Child]:
    """The workers of a job by index, each in a phase or lost with its node; its server runs, and it has its services
    and its file."""
    pods = [pod(job, i, **LOST) if phase == "lost" else pod(job, i, phase) for i, phase in enumerate(phases)]
    services = [a_service(job, "worker", index) for index in range(len(phases))]
    return [*pods, a_pod(job, "ps"), *services, a_service(job, "ps"), a_file(job)]


def a_file(job: Json, text: str = "") -> ChildView:
    return view_of_child(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{job['metadata']['name']}-membership",
                "namespace": job["metadata"]["namespace"],
                "uid": "uid-of-file",
                "resourceVersion": "250",
                "ownerReferences": [owner_reference(job)],
            },
            "data": {"members.json": text} if text else {},
        }
    )


def brought_to(job: Json, children: list[Child], *, now: datetime = NOW) -> Json:
    """The job after it was first seen, and then seen with these children."""
    job = with_status(job, plan_of(job))
    for _ in range(3):
        job = with_status(job, plan_of(job, children, now=now))
    return job


def calm(job: Json, children: list[Child], *, now: datetime = LATER) -> tuple[Json, list[Child]]:
    """The job and what it owns when nothing is left to do; between two passes goes a second."""
    for second in range(20):
        plan = plan_of(job, children, now=now + timedelta(seconds=second))
        if plan.is_quiet and plan.requeue_after is None:
            return job, children
        job, children = after(job, children, plan)
    raise AssertionError(f"still at work: {plan}")


def file_in(children: list[Child]) -> Json:
    (found,) = [child for child in children if isinstance(child, WholeChild)]
    read: Json = json.loads(found.body["data"]["members.json"])
    return read


# --- how many ---


@pytest.mark.parametrize(
    ("job", "count"),
    [
        pytest.param(elastic("Never", 2, minReplicas=1, maxReplicas=4), 2, id="never: what is written"),
        pytest.param(elastic("Manual", 2, minReplicas=1, maxReplicas=4), 2, id="manual: what is written"),
        pytest.param(elastic("Manual", 2, maxReplicas=4, scale=4), 4, id="manual: what it was scaled to"),
        pytest.param(elastic("Auto", 2, minReplicas=1, maxReplicas=4), 4, id="auto: as many as there may be"),
        pytest.param(elastic("Auto", 2, minReplicas=1), 2, id="auto without a maximum: what is written"),
        pytest.param(elastic("Auto", 2, maxReplicas=4, scale=3), 3, id="auto: what it was scaled to"),
    ],
)
def test_the_policy_says_how_many_replicas_there_are(job: Json, count: int) -> None:
    assert created(job) == [f"mnist-worker-{index}" for index in range(count)]
    assert created(job, "ps") == ["mnist-ps-0"]


@pytest.mark.parametrize("policy", ["Auto", "Manual"])
def test_new_pods_are_told_of_all_replicas_that_there_are_to_be(policy: str) -> None:
    job = elastic(policy, 2, scale=3)

    (body,) = [c.body for c in plan_of(job).creates if c.resource == POD and c.key.name == "mnist-worker-2"]

    env = {entry["name"]: entry["value"] for entry in body["spec"]["containers"][0]["env"]}
    assert env["WORKER_INSTANCES"] == "mnist-worker-0.ml,mnist-worker-1.ml,mnist-worker-2.ml"
    assert env["WORKER_INSTANCES_NUM"] == "3"


def test_a_scale_up_creates_what_is_missing_and_touches_nothing_else() -> None:
    job = elastic("Manual", 2)
    children = workers(job, "Running", "Running")
    job = with_spec(brought_to(job, children), elasticReplicas=4)

    plan = plan_of(job, children)

    new = ["mnist-worker-2", "mnist-worker-3"]
    assert (names_of(plan.creates, SERVICE), names_of(plan.creates, POD)) == (new, new)
    assert plan.deletes == ()


def test_a_scale_down_drains_the_highest_index_and_touches_nothing_else() -> None:
    job = elastic("Manual", 4)
    children = workers(job, *["Running"] * 4)
    job = with_spec(brought_to(job, children), elasticReplicas=2)

    plan = plan_of(job, children)

    assert [(d.resource, d.key.name, d.grace) for d in plan.deletes] == [
        (POD, "mnist-worker-3", None),
        (POD, "mnist-worker-2", None),
    ]
    assert plan.creates == ()


@pytest.mark.parametrize("policy", ["Auto", "Manual"])
def test_what_an_autoscaler_reads_is_in_the_status(policy: str) -> None:
    job = elastic(policy, 3)
    children = [*workers(job, "Running", "Pending"), pod(job, 2, deleting=True), pod(job, 3)]

    status = brought_to(job, children)["status"]

    assert status["elasticReplicas"] == 2
    assert status["selector"] == (
        "GroupName=elasticdeeplearning.ai,TrainingJobName=mnist,TrainingJobReplicaName=worker"
    )


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(an_aitj(worker=2, ps=1), id="none that is elastic"),
        pytest.param(
            an_aitj(worker=a_replica(2, edlPolicy="Manual"), ps=a_replica(1, edlPolicy="Manual")), id="two that are"
        ),
    ],
)
def test_an_autoscaler_finds_nothing_where_it_is_not_clear_what_it_would_scale(job: Json) -> None:
    status = brought_to(job, workers(job, "Running", "Running"))["status"]

    assert "elasticReplicas" not in status
    assert "selector" not in status


def test_what_an_autoscaler_reads_goes_when_its_role_is_not_elastic_any_more() -> None:
    job = elastic("Manual", 1)
    job = brought_to(job, workers(job, "Running"))

    status = status_of(plan_of(with_spec(job, replicaSpecs={"worker": a_replica(1), "ps": a_replica(1)}), workers(job)))

    assert "elasticReplicas" not in status
    assert "selector" not in status


# --- how many are enough ---


@pytest.mark.parametrize(
    ("job", "phases", "expected"),
    [
        pytest.param(
            elastic(minReplicas=2, maxReplicas=4),
            ["Running", "Running", "Pending", "Pending"],
            ("Running", "running with 2 of 4 worker pods"),
            id="auto: the minimum runs",
        ),
        pytest.param(
            elastic(minReplicas=2, maxReplicas=4),
            ["Running", "Pending", "Pending", "Pending"],
            ("Pending", "all pods are waiting for scheduling"),
            id="auto: less than the minimum",
        ),
        pytest.param(
            elastic(minReplicas=2, maxReplicas=4),
            ["Pending", "Pending", "Running", "Running"],
            ("Running", "running with 2 of 4 worker pods"),
            id="auto: whichever they are",
        ),
        pytest.param(
            elastic(minReplicas=2, maxReplicas=4),
            ["Running"] * 4,
            ("Running", "all pods are running"),
            id="auto: all of them",
        ),
        pytest.param(
            elastic(),
            ["Running", "Pending"],
            ("Pending", "all pods are waiting for scheduling"),
            id="auto without a minimum: all that are written",
        ),
        pytest.param(
            elastic(minReplicas=0, maxReplicas=2),
            ["Pending", "Pending"],
            ("Pending", "all pods are waiting for scheduling"),
            id="auto with a minimum of none: one is needed",
        ),
        pytest.param(
            elastic("Manual", minReplicas=1),
            ["Running", "Pending"],
            ("Pending", "all pods are waiting for scheduling"),
            id="manual: all of them, the first time",
        ),
    ],
)
def test_a_job_runs_as_soon_as_enough_of_its_pods_do(job: Json, phases: list[str], expected: tuple[str, str]) -> None:
    assert said(brought_to(job, workers(job, *phases))) == expected


def test_a_job_is_creating_as_soon_as_enough_of_its_pods_have_a_node() -> None:
    job = elastic(minReplicas=2, maxReplicas=3)
    children = [c for c in workers(job, *["Pending"] * 3) if not isinstance(c, PodView)]
    placed = [pod(job, i, "Pending", node="node-1" if i < 2 else "") for i in range(3)]

    assert said(brought_to(job, [*children, *placed, a_pod(job, "ps")]))[0] == "Creating"


def test_a_job_that_was_scaled_up_by_hand_keeps_running_while_more_pods_come() -> None:
    job = elastic("Manual", 2)
    job = with_spec(brought_to(job, workers(job, "Running", "Running")), elasticReplicas=3)

    job = with_status(job, plan_of(job, workers(job, "Running", "Running", "Pending")))

    assert said(job) == ("Running", "running with 2 of 3 worker pods")


def test_a_restart_of_an_elastic_job_is_over_when_enough_of_it_runs_again() -> None:
    job = elastic(minReplicas=1, maxReplicas=2)
    job = brought_to(job, workers(job, "Running", "Running"))
    job = with_status(job, {**job["status"], "phase": "Restarting"})

    assert said(with_status(job, plan_of(job, workers(job, "Running", "Pending"))))[0] == "Running"


# --- how it ends ---


@pytest.mark.parametrize(
    ("job", "phases", "ending"),
    [
        pytest.param(
            elastic(minReplicas=2, maxReplicas=4),
            ["Succeeded", "Succeeded", "Pending", "Pending"],
            "Succeed",
            id="who never got room has no say",
        ),
        pytest.param(
            elastic(minReplicas=2, maxReplicas=4),
            ["Pending", "Succeeded", "Succeeded", "Pending"],
            "Succeed",
            id="not even the first",
        ),
        pytest.param(
            elastic(minReplicas=2, maxReplicas=4),
            ["Succeeded", "Running", "Pending", "Pending"],
            "",
            id="who runs is waited for",
        ),
        pytest.param(
            elastic(minReplicas=2, maxReplicas=4),
            ["Succeeded", "Pending", "Pending", "Pending"],
            "",
            id="too few have run",
        ),
        pytest.param(
            elastic(minReplicas=1, maxReplicas=2, completePolicy="Rank0"),
            ["Pending", "Succeeded"],
            "",
            id="the first decides, and has not run",
        ),
        pytest.param(
            elastic("Manual", 4, minReplicas=2),
            ["Succeeded", "Succeeded", "Pending", "Pending"],
            "",
            id="by hand: everybody is waited for",
        ),
    ],
)
def test_an_auto_role_is_over_when_all_that_took_part_are(job: Json, phases: list[str], ending: str) -> None:
    job = {**job, "spec": {**job["spec"], "completePolicy": "Any"}}
    job["spec"]["replicaSpecs"]["ps"]["completePolicy"] = "None"
    job = brought_to(job, workers(job, *["Running"] * len(phases)))

    status = plan_of(job, workers(job, *phases)).status or job["status"]

    assert status.get("ending", {}).get("phase", "") == ending


# --- a lost node ---


def survived(job: Json, *phases: str, now: datetime = NOW) -> tuple[Json, list[Child], Plan]:
    """A job that ran, with some of its workers lost, and what is planned then."""
    job = brought_to(job, workers(job, *["Running"] * len(phases)))
    children = workers(job, *phases)
    return job, children, plan_of(job, children, now=now)


def test_an_auto_job_goes_on_with_the_survivors_of_a_lost_node() -> None:
    job, children, first = survived(elastic(minReplicas=2, maxReplicas=4), "Running", "lost", "Running", "lost")
    assert first.status_first  # before anything is deleted, it is on record who is given up
    assert (first.deletes, first.creates) == ((), ())
    assert [(e.type, e.reason) for e in first.events] == [("Warning", "Shrunk")]

    job, children = after(job, children, first)
    second = plan_of(job, children)
    assert set(names_of(second.deletes, POD)) == {"mnist-worker-1", "mnist-worker-3"}
    assert names_of(second.deletes, SERVICE) == []

    job, children = after(job, children, second)
    third = plan_of(job, children)
    assert said(with_status(job, third)) == ("Running", "running with 2 of 4 worker pods")
    assert names_of(third.creates, POD) == ["mnist-worker-1", "mnist-worker-3"]


def test_a_pod_that_still_seems_to_run_on_a_node_that_is_gone_is_lost_and_forced_to_go() -> None:
    job = elastic(minReplicas=1, maxReplicas=2)
    rest = workers(job, "Running", "Running")[2:]
    children = [pod(job, 0, node="node-1"), pod(job, 1, node="n1"), *rest]
    nodes = [a_node("node-1"), NodeView(Key("", "n1"), is_gone=True)]
    job = brought_to(job, children)

    first = plan_of(job, children, nodes=nodes, now=LATER)
    job, children = after(job, children, first)
    second = plan_of(job, children, nodes=nodes, now=LATER)
    third = plan_of(with_status(job, second), children, nodes=nodes, now=LATER)

    assert [event.reason for event in first.events] == ["Shrunk"]
    assert {(d.key.name, d.grace) for plan in (second, third) for d in plan.deletes} == {("mnist-worker-1", 0)}
    assert job["status"]["phase"] == "Running"


def test_a_lost_node_costs_an_auto_role_nothing_of_its_restart_budget() -> None:
    _, _, plan = survived(elastic(minReplicas=1, maxReplicas=2, restartLimit=0), "Running", "lost")

    restarts = status_of(plan)["restarts"]["worker"]
    assert restarts.get("used", 0) == 0
    assert restarts["attempts"] == {"1": 1}
    assert status_of(plan)["RestartCount"] == {"worker": 1}
    assert [entry["replica"] for entry in status_of(plan)["restartHistory"]] == ["worker-1"]


def test_a_job_that_loses_nodes_again_and_again_waits_longer_each_time() -> None:
    job = elastic(minReplicas=1, maxReplicas=2)
    waits = []
    for attempt in range(3):
        alive = [pod(job, 0), pod(job, 1, attempt=attempt, **LOST), *workers(job, "Running", "Running")[2:]]
        job = brought_to(job, alive) if not attempt else with_status(job, plan_of(job, alive))
        gone = [child for child in alive if child is not alive[1]]
        waits.append(plan_of(job, gone).requeue_after)

    assert waits == [None, 10, 20]


def test_a_calm_time_ends_the_waiting_though_the_job_ran_all_the_while() -> None:
    job = elastic(minReplicas=1, maxReplicas=2)
    rest = workers(job, "Running", "Running")[2:]
    job = brought_to(job, [pod(job, 0), pod(job, 1), *rest])
    for attempt, now in ((0, NOW), (1, NOW + timedelta(seconds=599)), (2, NOW + timedelta(seconds=1200))):
        lost = [pod(job, 0), pod(job, 1, attempt=attempt, **LOST), *rest]
        job = with_status(job, plan_of(job, lost, now=now))
        streak = job["status"]["restarts"]["worker"]["streak"]
        assert streak == {0: 1, 1: 2, 2: 1}[attempt]


@pytest.mark.parametrize(
    ("job", "phases", "ending"),
    [
        pytest.param(
            elastic(minReplicas=2, maxReplicas=3), ["Running", "lost", "lost"], "Failed", id="too few are left"
        ),
        pytest.param(
            elastic(minReplicas=1, maxReplicas=2), ["Succeeded", "lost"], "Failed", id="who is left has ended already"
        ),
        pytest.param(elastic("Manual", 3, minReplicas=1), ["Running", "Running", "lost"], "Failed", id="by hand"),
        pytest.param(elastic("Never", 3), ["Running", "Running", "lost"], "Failed", id="never"),
    ],
)
def test_otherwise_the_restart_policy_decides(job: Json, phases: list[str], ending: str) -> None:
    _, _, plan = survived(job, *phases)

    assert status_of(plan)["ending"]["phase"] == ending


def test_below_the_minimum_a_policy_that_wants_it_restarts_the_role() -> None:
    job = elastic(minReplicas=2, maxReplicas=3, restartPolicy="OnNodeFail", restartScope="Replica")

    _, _, plan = survived(job, "Running", "lost", "lost")

    assert status_of(plan)["RestartReplicaName"] == "worker"
    assert status_of(plan)["restarts"]["worker"]["used"] == 1


def test_a_program_that_fails_is_no_lost_node() -> None:
    job = brought_to(elastic(minReplicas=1, maxReplicas=2), workers(elastic(), "Running", "Running"))
    crashed = [pod(job, 0), pod(job, 1, "Failed", exit_code=1), *workers(job, "Running", "Running")[2:]]

    assert status_of(plan_of(job, crashed))["ending"]["phase"] == "Failed"


# --- who takes part ---


def test_the_file_comes_before_the_pods_that_mount_it() -> None:
    first, *_ = plan_of(elastic(minReplicas=1, maxReplicas=2)).creates

    assert (first.resource, first.key.name) == (CONFIG_MAP, "mnist-membership")
    assert first.body["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "trainmaster"
    assert first.body["metadata"]["ownerReferences"][0]["uid"] == "uid-of-mnist"
    assert json.loads(first.body["data"]["members.json"]) == {"generation": 1, "members": []}


@pytest.mark.parametrize("name", ["mnist-ps-0", "mnist-worker-0"])
def test_every_pod_of_an_elastic_job_mounts_the_file_and_is_told_where_it_is(name: str) -> None:
    mine = {"name": "data", "mountPath": "/data"}
    template = a_template(
        a_container("aitj-main", volumeMounts=[mine]),
        a_container("side"),
        initContainers=[a_container("init")],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    job = an_aitj(worker=a_replica(1, template, edlPolicy="Manual"), ps=a_replica(1, template))

    (body,) = [c.body for c in plan_of(job).creates if c.resource == POD and c.key.name == name]

    folder = {"name": "trainmaster-membership", "mountPath": "/var/run/trainmaster", "readOnly": True}
    containers = [*body["spec"]["containers"], *body["spec"]["initContainers"]]
    assert [c["volumeMounts"] for c in containers] == [[mine, folder], [folder], [folder]]
    assert body["spec"]["volumes"] == [
        {"name": "data", "emptyDir": {}},
        {"name": "trainmaster-membership", "configMap": {"name": "mnist-membership"}},
    ]
    path = {"name": "TRAININGJOB_MEMBERSHIP_FILE", "value": "/var/run/trainmaster/members.json"}
    assert all(path in container["env"] for container in containers)


def test_a_job_of_fixed_size_has_neither_file_nor_mount() -> None:
    plan = plan_of(an_aitj(worker=a_replica(2, edlPolicy="Never", minReplicas=1, maxReplicas=4)))

    assert names_of(plan.creates, CONFIG_MAP) == []
    assert all("volumes" not in c.body["spec"] for c in plan.creates if c.resource == POD)


def test_members_are_the_pods_that_run_and_stay() -> None:
    job = elastic("Manual", 4)
    services = [child for child in workers(job, *["Running"] * 4) if not isinstance(child, PodView)]
    pods = [pod(job, 0), pod(job, 1, "Pending"), pod(job, 2, deleting=True), pod(job, 3, "Succeeded"), pod(job, 4)]

    _, children = calm(brought_to(job, [*pods, *services]), [*pods, a_pod(job, "ps"), *services])

    found = file_in(children)
    assert found["members"] == [
        {
            "name": "mnist-ps-0",
            "role": "ps",
            "index": 0,
            "address": "mnist-ps-0.ml",
            "ports": [24446],
            "attempt": 0,
        },
        {
            "name": "mnist-worker-0",
            "role": "worker",
            "index": 0,
            "address": "mnist-worker-0.ml",
            "ports": [24446],
            "attempt": 0,
        },
    ]


def test_a_pod_of_an_old_attempt_is_no_member_and_a_new_one_says_its_attempt() -> None:
    job = elastic(minReplicas=1, maxReplicas=2)
    job = brought_to(job, workers(job, "Running", "Running"))
    job = with_status(job, plan_of(job, workers(job, "Running", "lost")))
    rest = workers(job, "Running", "Running")[2:]

    _, before = calm(job, [pod(job, 0), pod(job, 1), *rest])
    _, behind = calm(job, [pod(job, 0), pod(job, 1, attempt=1), *rest])

    assert [m["name"] for m in file_in(before)["members"]] == ["mnist-ps-0", "mnist-worker-0"]
    assert [(m["name"], m["attempt"]) for m in file_in(behind)["members"]] == [
        ("mnist-ps-0", 0),
        ("mnist-worker-0", 0),
        ("mnist-worker-1", 1),
    ]


def test_a_member_on_a_shared_network_has_the_ports_that_were_given_to_it() -> None:
    settings = Settings(shared_network=True)
    job = elastic("Manual", 1)
    job = with_status(job, plan_of(job, settings=settings))
    children = workers(job, "Running")

    for _ in range(2):
        job, children = after(job, children, plan_of(job, children, settings=settings))

    given = job["status"]["ports"]["worker-0"]["24446"]
    assert given != 24446
    assert file_in(children)["members"][1]["ports"] == [given]


def test_every_change_of_the_members_is_a_new_generation_and_nothing_else_is() -> None:
    job = elastic("Manual", 2)
    job, children = calm(job, workers(job, "Running", "Pending"))
    one = file_in(children)
    joined = [
        pod(job, 1) if child.key.name == "mnist-worker-1" and isinstance(child, PodView) else child
        for child in children
    ]
    job, children = calm(job, joined)
    two = file_in(children)

    assert (one["generation"], len(one["members"])) == (2, 2)
    assert (two["generation"], len(two["members"])) == (3, 3)
    assert plan_of(job, children, now=LATER + timedelta(hours=1)).is_quiet


def test_a_generation_is_on_record_before_the_file_has_it() -> None:
    job = elastic("Manual", 1)
    children = workers(job, "Running")
    job = with_status(job, plan_of(job))

    first = plan_of(job, children)
    second = plan_of(with_status(job, first), children)

    assert first.status_first
    assert status_of(first)["membership"]["generation"] == 2
    assert [json.loads(patch.body["data"]["members.json"])["generation"] for patch in second.patches] == [2]


def test_pods_that_start_in_the_same_second_join_with_one_change() -> None:
    job = elastic("Manual", 2)
    job = brought_to(job, workers(job, "Running", "Pending"))

    plan = plan_of(job, workers(job, "Running", "Running"))
    after_a_second = plan_of(job, workers(job, "Running", "Running"), now=NOW + timedelta(seconds=1))

    assert (plan.patches, plan.requeue_after) == ((), 1)
    assert status_of(after_a_second)["membership"]["generation"] == 3


@pytest.mark.parametrize("behind", [timedelta(seconds=1), timedelta(hours=1)])
def test_a_clock_that_is_behind_the_last_change_delays_no_member(behind: timedelta) -> None:
    """The next operator runs on another machine, or the clock of this one was corrected."""
    job = elastic("Manual", 2)
    job = brought_to(job, workers(job, "Running", "Pending"))

    plan = plan_of(job, workers(job, "Running", "Running"), now=NOW - behind)

    assert status_of(plan)["membership"]["generation"] == 3


def test_a_change_of_the_file_is_refused_if_somebody_else_changed_it() -> None:
    job = brought_to(elastic("Manual", 1), workers(elastic("Manual", 1), "Running"))
    (patch,) = plan_of(job, workers(job, "Running")).patches

    assert (patch.resource, patch.key.name, patch.uid, patch.version) == (
        CONFIG_MAP,
        "mnist-membership",
        "uid-of-file",
        250,
    )
    assert patch.why == "the members changed: 2 pods take part now"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"generation":"x"}', '{"x":' + "[" * 1500 + "]" * 1500 + "}"],
    ids=["nothing", "a list", "half", "a word", "nested too deeply"],
)
def test_a_file_that_somebody_spoilt_is_written_again(text: str) -> None:
    job, children = calm(elastic("Manual", 1), workers(elastic("Manual", 1), "Running"))
    spoilt = [a_file(job, text) if isinstance(child, ChildView) else child for child in children]

    _, mended = calm(job, spoilt)

    assert file_in(mended) == file_in(children)


def test_what_somebody_added_to_the_file_is_left() -> None:
    job, children = calm(elastic("Manual", 1), workers(elastic("Manual", 1), "Running"))
    (file,) = [child for child in children if isinstance(child, WholeChild)]
    edited = view_of_child({**file.body, "data": {**file.body["data"], "notes": "mine"}})

    assert plan_of(job, [edited if child is file else child for child in children]).is_quiet


def test_a_file_that_somebody_deleted_comes_back() -> None:
    job, children = calm(elastic("Manual", 1), workers(elastic("Manual", 1), "Running"))

    _, mended = calm(job, [child for child in children if not isinstance(child, ChildView)])

    assert file_in(mended) == file_in(children)


@pytest.mark.parametrize(("clean", "is_kept"), [("All", False), ("Running", False), ("None", True)])
def test_the_file_goes_with_the_services(clean: str, is_kept: bool) -> None:
    job = an_aitj(worker=a_replica(1, edlPolicy="Manual"), clean=clean)
    children: list[Child] = [pod(job, 0, "Succeeded", exit_code=0), a_service(job, "worker"), a_file(job)]

    job, left = calm(brought_to(job, [pod(job, 0), *children[1:]]), children)

    assert job["status"]["phase"] == "Succeed"
    assert any(isinstance(child, ChildView) for child in left) == is_kept


# --- the end ---


def test_the_file_is_deleted_when_no_pod_is_left_that_reads_it() -> None:
    """A kubelet that refreshes the volume of a pod that ends would report FailedMount."""
    job = elastic("Manual", 2)
    job = brought_to(job, workers(job, "Running", "Running"))
    over = workers(job, "Failed", "Running")
    job = with_status(job, plan_of(job, over))
    while_it_ends = plan_of(job, over)
    left = [child for child in over if not isinstance(child, PodView)]
    at_the_end = plan_of(job, left)

    assert said(job)[0] == "Terminating"
    assert "mnist-ps-0" in names_of(while_it_ends.deletes, POD)
    assert names_of(while_it_ends.deletes, CONFIG_MAP) == []
    assert names_of(at_the_end.deletes, CONFIG_MAP) == ["mnist-membership"]
    assert status_of(at_the_end)["phase"] == "Failed"
