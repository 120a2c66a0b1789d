"""The tables of labels, annotations and variables say what the operator really sets, neither less nor more.

The jobs of ``JOBS`` are run until all of their pods exist. What pods and services have is compared with the tables.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
import pytest

from reference import forms
from reference.forms import Form, Words
from tests.build import (
    SETTINGS,
    Json,
    a_container,
    a_dijob,
    a_ditask,
    a_nervexjob,
    a_replica,
    a_task,
    a_template,
    an_agconfig,
    an_aitj,
    an_mx_replica,
    an_mxjob,
)
from tests.matrix.world import World
from trainmaster.core.ids import JOB, POD, SERVICE, Resource
from trainmaster.kinds.dijob import aggregatorconfig, nervexjob

PORT = 24446
MANY = 65
"""Replicas of a large job."""
GANGS = ("", "volcano", "scheduler-plugins-scheduler")


@dataclass(frozen=True)
class Found:
    """What pods and services have."""

    labels: set[str] = field(default_factory=set)
    annotations: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)

    def add(self, body: Json) -> None:
        self.labels.update(body["metadata"].get("labels", {}))
        self.annotations.update(body["metadata"].get("annotations", {}))
        for container in body["spec"].get("containers", ()):
            self.variables.update(entry["name"] for entry in container.get("env", ()))


# --- jobs of each kind that have everything together ---


def _trains(main: str = "aitj-main", port: str = "aitj-24446") -> Json:
    return a_template(a_container(main, ports={port: PORT}))


def _aitj(*roles: str, replicas: int = 1, of_role: Json | None = None, **spec: Any) -> Json:
    found = {role: a_replica(replicas, _trains(), **(of_role or {})) for role in roles}
    job = an_aitj("job", roles=found)
    return {**job, "spec": {**job["spec"], **spec}}


_ELASTIC = {"edlPolicy": "Manual", "minReplicas": 1, "maxReplicas": 3}
_DECLARED = {
    "members": {f"job-{role}-bbbbb": {"role": role, "at": "2026-01-01T00:00:00Z"} for role in ("collector", "learner")}
}
_DDP = {
    "members": {
        "job-aggregator-bbbbb": {"role": "aggregator", "at": "2026-01-01T00:00:00Z", "worldSize": 2},
        **{
            f"job-ddp-learner-{suffix}": {
                "role": "ddp-learner",
                "at": "2026-01-01T00:00:00Z",
                "gpus": 1,
                "worldSize": 2,
                "aggregator": "job-aggregator-bbbbb",
                "startRank": rank,
                "master": master,
            }
            for rank, (suffix, master) in enumerate((("ccccc", ""), ("ddddd", "job-ddp-learner-ccccc")))
        },
    },
    "aggregator": {"port": 80},
}


def _rl(make: Callable[..., Json], declared: Json, main: str = "") -> Json:
    roles = {role: {"template": a_template(a_container(main or role))} for role in ("collector", "learner")}
    coordinator = a_template(a_container(main or "coordinator"))
    restarts = {"coordinator": {"count": 1, "attempt": 1}}
    return make("job", coordinator=coordinator, spec=roles, status={"declared": declared, "restarts": restarts})


def _mlkube(group: str) -> Json:
    types = {"SCHEDULER": 1, "SERVER": 1, "WORKER": 1}
    template = a_template(a_container("mxnet"))
    roles = [{"mxReplicaType": type_, "replicas": n, "template": template} for type_, n in types.items()]
    metadata = {"name": "job", "namespace": "ml", "uid": "uid-of-job"}
    spec = {"jobMode": "dist", "replicaSpecs": roles}
    return {"apiVersion": f"{group}/v1beta1", "kind": "MxJob", "metadata": metadata, "spec": spec}


JOBS: Mapping[str, Sequence[Json]] = {
    "AITrainingJobKind": (
        _aitj("my-ps", "trainer", priority="high"),
        _aitj("trainer", replicas=MANY),
        _aitj("trainer", of_role=_ELASTIC),
        *(_aitj("trainer", frameworkType=word) for word in ("pytorch", "tensorflow", "paddle", "jax")),
        _aitj("worker", of_role=_ELASTIC, frameworkType="pytorch"),
        _aitj("worker", replicas=2, frameworkType="tensorflow"),
        _aitj("scheduler", "server", "worker", frameworkType="mxnet"),
    ),
    "DIJobKind": (_rl(a_dijob, _DECLARED, "di-container"), _rl(a_dijob, _DDP, "di-container")),
    "NerveXJobKind": (_rl(a_nervexjob, _DECLARED),),
    "DITaskKind": (
        a_ditask("job", a_task("learner"), a_task("collector", 2), spec={"priority": "high"}),
        a_ditask("job", a_task("collector", MANY)),
    ),
    "MXJobKind": (an_mxjob("job"), an_mxjob("job", Worker=an_mx_replica(MANY))),
    "MxJobKind": (_mlkube("mxnet.mlkube.io"),),
    "FirstMxJobKind": (_mlkube("mlkube.io"),),
}
RELATED: Sequence[tuple[Resource, Json]] = (
    (nervexjob.AGGREGATOR_CONFIG, an_agconfig()),
    (
        aggregatorconfig.RESOURCE,
        {
            **an_agconfig(a_template(a_container("di-container", ports={"di-port": 80}))),
            "apiVersion": aggregatorconfig.RESOURCE.api_version,
            "metadata": {**an_agconfig()["metadata"], "namespace": "di-system"},
        },
    ),
)


def _bodies(world: World) -> Iterator[Json]:
    """Pods, services, and of batch Jobs their templates: a Job's own controller adds labels to pods."""
    for body in world.api.objects.get(JOB, {}).values():
        yield {**body, "spec": {}}
        yield body["spec"]["template"]
    pods = world.api.objects.get(POD, {}).values() if not world.api.objects.get(JOB) else ()
    yield from (*pods, *world.api.objects.get(SERVICE, {}).values())


def _queued(job: Json) -> Json:
    """With the labels that are read."""
    return {**job, "metadata": {**job["metadata"], "labels": dict.fromkeys(forms.READ_LABELS, "night")}}


@cache
def found_of(kind: str) -> Found:
    found = Found()
    for job in map(_queued, JOBS[kind]):
        for gang in GANGS:
            with World(job, settings=msgspec.structs.replace(SETTINGS, gang_scheduler=gang)) as world:
                for resource, body in RELATED:
                    world.put(resource, body)
                world.create()
                world.run(60)
                for body in _bodies(world):
                    found.add(body)
    return found


FORMS = [pytest.param(form, id=form.kind.__name__) for form in forms.FORMS]


def _matches(pattern: str, word: str) -> bool:
    """``<ROLE>`` in a table is any name."""
    return re.fullmatch(re.sub(r"<[A-Z]+>", "[A-Z][A-Z_-]*", pattern), word) is not None


def _compare(found: Iterable[str], table: Words) -> tuple[list[str], list[str]]:
    """What is set and not in the table, and what is in the table and never set."""
    words = set(found)
    undocumented = [word for word in words if not any(_matches(pattern, word) for pattern in table)]
    unused = [pattern for pattern in table if not any(_matches(pattern, word) for word in words)]
    return sorted(undocumented), sorted(unused)


@pytest.mark.parametrize("form", FORMS)
def test_the_labels_of_pods_and_services_are_those_of_the_table(form: Form) -> None:
    assert _compare(found_of(form.kind.__name__).labels, {**form.labels, **forms.LABELS}) == ([], [])


@pytest.mark.parametrize("form", FORMS)
def test_the_annotations_of_pods_are_those_of_the_table(form: Form) -> None:
    assert _compare(found_of(form.kind.__name__).annotations, {**form.annotations, **forms.ANNOTATIONS}) == ([], [])


@pytest.mark.parametrize("form", FORMS)
def test_the_variables_of_containers_are_those_of_the_tables(form: Form) -> None:
    of_frameworks = {name: text for words in form.frameworks.values() for name, text in words.items()}

    assert _compare(found_of(form.kind.__name__).variables, {**form.environment, **of_frameworks}) == ([], [])
