"""Bounded work: one plan of the largest jobs that validation accepts builds few bodies and needs little memory.

The budget is that of docs/decisions/0001. Time is left to a measurement by hand: it depends on the machine.
"""

import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_container,
    a_dijob,
    a_ditask,
    a_nervexjob,
    a_replica,
    a_service,
    a_task,
    a_template,
    an_aitj,
    an_mx_replica,
    an_mxjob,
    children_of,
    kind_of,
    observed,
    plan_of,
    services_of,
    settled,
    view_of,
    with_aggregator,
)
from tests.manifests.build import crew, mlkubejob
from trainmaster.core.condition import ACCEPTED
from trainmaster.core.ids import JOB, POD
from trainmaster.core.plan import MAX_ACTIONS, MAX_BYTES, Plan
from trainmaster.kinds.aitrainingjob.body import Builder as AITrainingJobBuilder
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.base import Kind
from trainmaster.kinds.dijob.body import Builder as DIJobBuilder
from trainmaster.kinds.dijob.declaration import MAX_MEMBERS
from trainmaster.kinds.dijob.kind import DIJobKind, NerveXJobKind
from trainmaster.kinds.ditask.body import Builder as DITaskBuilder
from trainmaster.kinds.ditask.kind import DITaskKind
from trainmaster.kinds.mlkube.body import Builder as MxJobBuilder
from trainmaster.kinds.mlkube.kind import FirstMxJobKind, MxJobKind
from trainmaster.kinds.mxjob.body import Builder as MXJobBuilder
from trainmaster.kinds.mxjob.kind import MXJobKind
from trainmaster.kinds.registry import KINDS

MEMORY = 50 * 1024 * 1024
"""Bytes that one plan may need at its peak, what is observed not counted."""

BUILDERS: Mapping[type[Kind[Any]], tuple[tuple[Any, str], ...]] = {
    AITrainingJobKind: ((AITrainingJobBuilder, "pod"), (AITrainingJobBuilder, "service")),
    MXJobKind: ((MXJobBuilder, "pod"), (MXJobBuilder, "service")),
    MxJobKind: ((MxJobBuilder, "pod"), (MxJobBuilder, "service")),
    FirstMxJobKind: ((MxJobBuilder, "pod"), (MxJobBuilder, "service")),
    DITaskKind: ((DITaskBuilder, "pod"), (DITaskBuilder, "service")),
    DIJobKind: ((DIJobBuilder, "pod"), (DIJobBuilder, "service")),
    NerveXJobKind: ((DIJobBuilder, "pod"), (DIJobBuilder, "service")),
}
"""What builds the bodies of a kind's children."""


class Largest(NamedTuple):
    id: str
    job: Json
    children: Callable[[Json], list[Child]]


def nothing(_job: Json) -> list[Child]:
    return []


# --- the largest jobs --------------------------------------------------------------------------

REPLICAS = 10_000
DECLARED = MAX_MEMBERS


def roles_of(number: int, replicas: int, template: Json | None = None, **fields: Any) -> dict[str, Json]:
    """So many roles with names as short as possible, which have so many replicas together."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [*letters, *(f"a{letter}" for letter in letters)][:number]
    share, rest = divmod(replicas, number)
    return {name: a_replica(share + (index < rest), template, **fields) for index, name in enumerate(names)}


def short_aitj(roles: dict[str, Json], **fields: Any) -> Json:
    return an_aitj("j", namespace="n", roles=roles, **fields)


def with_ports(number: int) -> Json:
    return a_template(a_container("aitj-main", ports={f"aitj-{port}": port for port in range(1000, 1000 + number)}))


def with_sidecars(main: str, number: int, **fields: Any) -> Json:
    return a_template(a_container(main), *({"name": f"c{index}"} for index in range(number)), **fields)


def with_labels(main: str, number: int) -> Json:
    """20 000 labels fill most of a job."""
    return a_template(a_container(main), labels={f"l{index:05}": "" for index in range(number)})


MLKUBE = [crew("SCHEDULER"), crew("SERVER", 1000), crew("WORKER", 1000)]


def mlkube(group: str) -> Json:
    job = mlkubejob("j", group=group, jobMode="dist", replicaSpecs=MLKUBE)
    return job | {
        "metadata": {"name": "j", "namespace": "n", "uid": "uid-of-j", "generation": 1, "resourceVersion": "7"}
    }


def declared(job: Json, number: int) -> Json:
    """The job, running, with so many collectors that a coordinator asked for."""
    members = {member_name(job, index): {"role": "collector", "at": STAMP} for index in range(number)}
    status = job.get("status", {})
    return job | {
        "status": {**status, "phase": "Running", "declared": {**status.get("declared", {}), "members": members}}
    }


def member_name(job: Json, index: int) -> str:
    return f"{job['metadata']['name']}-collector-{index:05}"


def member_services(job: Json) -> list[Child]:
    roles = ["coordinator", *(["aggregator"] if job["kind"] == "NerveXJob" else [])]
    return [
        *(a_service(job, role) for role in roles),
        *(a_service(job, "collector", name=name) for name in job["status"]["declared"]["members"]),
    ]


def collecting(container: str = "di-container", template: Json | None = None) -> Json:
    return {"collector": {"template": template or a_template(a_container(container))}}


DIJOB = declared(a_dijob("j", spec=collecting()), DECLARED)
NERVEXJOB = declared(with_aggregator(a_nervexjob("j", spec=collecting("collector"))), DECLARED)
LABELLED_DIJOB = declared(a_dijob("j", spec=collecting(template=with_labels("di-container", 20_000))), DECLARED)


def ranked(job: Json) -> Json:
    """The job with the ranks of all replicas in its status."""
    places = [f"{task['type']}-{index}" for task in job["spec"]["tasks"] for index in range(task["replicas"])]
    pending = {"type": "Pending", "status": "True", "reason": "JobPending"}
    ranks = {place: rank for rank, place in enumerate(places)}
    return job | {"status": {"phase": "Pending", "conditions": [pending], "ranks": ranks}}


DITASK = ranked(a_ditask("j", a_task("learner"), a_task("collector", 2500), namespace="n"))
DITASK_SIDECARS = ranked(a_ditask("j", a_task("collector", 2500, with_sidecars("di-container", 2000)), namespace="n"))

FEW_ROLES = short_aitj(roles_of(2, REPLICAS))
ALL_ROLES = short_aitj(roles_of(32, REPLICAS))
ALL_PORTS = short_aitj(roles_of(10, 1100, with_ports(55)))
SIDECARS = short_aitj(roles_of(1, 5000, with_sidecars("aitj-main", 1300)))
ALL_ROLES_SIDECARS = short_aitj(roles_of(32, REPLICAS, with_sidecars("aitj-main", 100)))
LABELLED = short_aitj(roles_of(2, REPLICAS, with_labels("aitj-main", 10_000)))
ELASTIC = short_aitj(roles_of(2, 5000, edlPolicy="Auto", minReplicas=1, maxReplicas=2500))
TENSORFLOW = short_aitj(roles_of(2, 6500), spec={"frameworkType": "tensorflow"})
MXJOB = an_mxjob("j", Worker=3400)
MXJOB_SIDECARS = an_mxjob("j", Worker=an_mx_replica(3400, with_sidecars("mxnet", 4600)))

LARGEST = (
    Largest("aitrainingjob-few-roles", FEW_ROLES, nothing),
    Largest("aitrainingjob-few-roles-with-services", FEW_ROLES, services_of),
    Largest("aitrainingjob-few-roles-complete", FEW_ROLES, children_of),
    Largest("aitrainingjob-all-roles", ALL_ROLES, nothing),
    Largest("aitrainingjob-all-roles-with-services", ALL_ROLES, services_of),
    Largest("aitrainingjob-all-ports", ALL_PORTS, nothing),
    Largest("aitrainingjob-all-ports-with-services", ALL_PORTS, services_of),
    Largest("aitrainingjob-sidecars", SIDECARS, services_of),
    Largest("aitrainingjob-all-roles-sidecars", ALL_ROLES_SIDECARS, services_of),
    Largest("aitrainingjob-labels", LABELLED, services_of),
    Largest("aitrainingjob-elastic", ELASTIC, nothing),
    Largest("aitrainingjob-elastic-complete", ELASTIC, children_of),
    Largest("aitrainingjob-tensorflow", TENSORFLOW, services_of),
    Largest("mxjob", MXJOB, nothing),
    Largest("mxjob-with-services", MXJOB, services_of),
    Largest("mxjob-complete", MXJOB, children_of),
    Largest("mxjob-sidecars", MXJOB_SIDECARS, services_of),
    Largest("mxjob.mxnet.mlkube.io", mlkube("mxnet.mlkube.io"), nothing),
    Largest("mxjob.mlkube.io", mlkube("mlkube.io"), nothing),
    Largest("dijob", DIJOB, nothing),
    Largest("dijob-with-services", DIJOB, member_services),
    Largest("dijob-labels", LABELLED_DIJOB, member_services),
    Largest("dijob-v2alpha1", DITASK, nothing),
    Largest("dijob-v2alpha1-complete", DITASK, children_of),
    Largest("dijob-v2alpha1-sidecars", DITASK_SIDECARS, nothing),
    Largest("nervexjob", NERVEXJOB, nothing),
    Largest("nervexjob-with-services", NERVEXJOB, member_services),
)
each = pytest.mark.parametrize("largest", [pytest.param(largest, id=largest.id) for largest in LARGEST])


# --- the law -----------------------------------------------------------------------------------


def test_every_registered_kind_is_held_to_it() -> None:
    assert {type(kind_of(largest.job)) for largest in LARGEST} == set(BUILDERS) == set(KINDS)


@each
def test_one_plan_builds_no_more_bodies_than_one_pass_creates(
    largest: Largest, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = 0

    def counted(build: Callable[..., Json]) -> Callable[..., Json]:
        def build_one(*arguments: Any, **keywords: Any) -> Json:
            nonlocal built
            built += 1
            return build(*arguments, **keywords)

        return build_one

    for owner, name in BUILDERS[type(kind_of(largest.job))]:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))

    plan, _ = measured(largest.job, largest.children(largest.job))

    assert is_accepted(plan)
    assert built <= MAX_ACTIONS
    assert len(plan.creates) <= MAX_ACTIONS


@each
def test_one_plan_stays_within_its_memory(largest: Largest) -> None:
    plan, peak = measured(largest.job, largest.children(largest.job), traced=True)

    assert is_accepted(plan)
    assert peak <= MEMORY


@each
def test_what_is_accepted_fits_into_what_the_api_server_stores_and_linux_starts(largest: Largest) -> None:
    plan, _ = measured(largest.job, largest.children(largest.job))

    for create in plan.creates:
        values = create.body.get("data", {})
        assert sum(map(len, values.values())) <= 1024 * 1024
        assert all(len(f"{name}={value}") < 128 * 1024 for name, value in values.items())
        assert len(msgspec.json.encode(create.body)) <= 1536 * 1024


PODS = 2000
A_POD = 12_000
"""Bytes that a job of so many pods may store for each of them."""


@pytest.mark.parametrize(
    "largest",
    [
        pytest.param(largest, id=largest.id)
        for largest in (
            Largest("aitrainingjob", an_aitj(ps=PODS // 2, trainer=PODS // 2), services_of),
            Largest("aitrainingjob-many-roles", an_aitj(roles=roles_of(16, PODS)), services_of),
            Largest("mxjob", an_mxjob(Scheduler=1, Server=PODS // 2 - 1, Worker=PODS // 2), services_of),
            Largest("mxjob.mxnet.mlkube.io", mlkube("mxnet.mlkube.io"), nothing),
            Largest("mxjob.mlkube.io", mlkube("mlkube.io"), nothing),
            Largest("dijob", declared(a_dijob(spec=collecting()), PODS), member_services),
            Largest(
                "nervexjob", declared(with_aggregator(a_nervexjob(spec=collecting("collector"))), PODS), member_services
            ),
        )
    ],
)
def test_the_bytes_that_a_pod_needs_do_not_grow_with_the_job(largest: Largest) -> None:
    replicas = {POD, JOB}

    plan = plan_of(largest.job, largest.children(largest.job))

    sizes = [(create.resource in replicas, len(msgspec.json.encode(create.body))) for create in plan.creates]
    shared = sum(size for is_replica, size in sizes if not is_replica)
    assert max(size for is_replica, size in sizes if is_replica) + shared // PODS <= A_POD


def test_a_job_whose_bodies_need_several_passes_gets_all_its_pods() -> None:
    size = MAX_BYTES // 20
    template = a_template(a_container("aitj-main"), annotations={"note": "x" * size})

    _, children = settled(an_aitj(trainer=a_replica(50, template)))

    assert len([child for child in children if POD.kind in type(child).__name__]) == 50


def measured(job: Json, children: Iterable[Child], *, traced: bool = False) -> tuple[Plan, int]:
    """One plan, and the peak of its memory in bytes if it is traced."""
    kind, view, seen = kind_of(job), view_of(job), observed(job, children)
    if traced:
        tracemalloc.start()
    try:
        plan = kind.plan(view, seen, NOW)
        return plan, tracemalloc.get_traced_memory()[1] if traced else 0
    finally:
        tracemalloc.stop()


def is_accepted(plan: Plan) -> bool:
    conditions = (plan.status or {}).get("conditions", ())
    return not any(c["type"] == ACCEPTED and c["status"] == "False" for c in conditions)
