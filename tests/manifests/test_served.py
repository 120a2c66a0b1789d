"""Our definitions on a real API server, as an administrator installs them and users meet them."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from testbed.admin import Admin, eventually, path_of
from testbed.answer import Refused
from testbed.plane import ControlPlane
from tests.manifests.build import Manifest, aitrainingjob, container, dijob, replica, replicated, resource_of, template
from trainmaster.core.ids import Resource
from trainmaster.kinds import crd
from trainmaster.kinds.definition import Definition
from trainmaster.kinds.registry import DEFINITIONS

CRDS = "apiextensions.k8s.io/v1/customresourcedefinitions"
AITJ = "elasticdeeplearning.ai/v1/aitrainingjobs"
DEPLOYED = Path(__file__).parents[2] / "deploy" / "crds.yaml"


def test_kubectl_apply_works_twice_and_the_second_time_changes_nothing(served: ControlPlane) -> None:
    served.kubectl("apply", "--filename", DEPLOYED)

    again = served.kubectl("apply", "--filename", DEPLOYED)

    assert again.count("unchanged") == len(DEFINITIONS), again


@pytest.mark.parametrize("definition", [pytest.param(d, id=d.resource.kind) for d in DEFINITIONS])
async def test_a_definition_is_established_without_complaint(
    definition: Definition, served: ControlPlane, admin: Admin
) -> None:
    stored = await admin.get(CRDS, None, str(definition.resource))

    conditions = {condition["type"]: condition["status"] for condition in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize(
    ("path", "says"),
    [
        pytest.param("dijob", "requests collectors and learners", id="what-a-dijob-is"),
        pytest.param("dijob.spec", "cleanPodPolicy", id="fields-of-a-dijob"),
        pytest.param("aitj", "any number of roles", id="what-an-aitrainingjob-is"),
        pytest.param("aitj.spec.replicaSpecs.restartPolicy", "OnNodeFailWithExitCode", id="words-of-a-policy"),
        pytest.param("aitj.spec.replicaSpecs.restartScope", "the failed pod alone. Default: All.", id="a-default"),
        pytest.param("dijob.spec.tasks.template", "The pod template of the task.", id="what-a-template-is"),
        pytest.param("dijob.spec.tasks.template.spec.hostNetwork", "the network of its node", id="in-a-template"),
        pytest.param("aitj.status.ending", "while the pods are being deleted", id="what-a-status-field-is"),
    ],
)
def test_kubectl_explains(path: str, says: str, served: ControlPlane) -> None:
    assert says in " ".join(served.kubectl("explain", path).split())


async def test_kubectl_get_shows_phase_and_age_by_the_short_name(
    served: ControlPlane, namespace: str, admin: Admin
) -> None:
    for job, phase in ((dijob("rl"), "Created"), (aitrainingjob("mnist"), "Pending")):
        await admin.create(resource_of(job), job, namespace)
        await admin.set_status(resource_of(job), namespace, job["metadata"]["name"], _status(phase, "no node"))

    dijobs = served.kubectl("get", "dijob", f"--namespace={namespace}")
    trainings = served.kubectl("get", "aitj", f"--namespace={namespace}")

    assert [line.split()[:2] for line in dijobs.splitlines()] == [["NAME", "PHASE"], ["rl", "Created"]]
    assert [line.split()[:2] for line in trainings.splitlines()] == [["NAME", "PHASE"], ["mnist", "Pending"]]
    assert trainings.splitlines()[0].split() == ["NAME", "PHASE", "AGE", "READY", "RESTARTS"]


async def test_kubectl_get_wide_says_what_a_training_waits_for(
    served: ControlPlane, namespace: str, admin: Admin
) -> None:
    await admin.create(AITJ, aitrainingjob("mnist"), namespace)
    await admin.set_status(AITJ, namespace, "mnist", _status("Pending", "no node has 8 GPUs"))

    wide = served.kubectl("get", "aitj", f"--namespace={namespace}", "--output=wide")

    assert wide.splitlines()[1].endswith("no node has 8 GPUs")


async def test_fields_of_a_template_that_we_do_not_know_survive_at_every_level(
    served: ControlPlane, namespace: str, admin: Admin
) -> None:
    unknown: Manifest = {"fromTheFuture": {"deep": [1, {"er": None}]}}
    written = {
        **unknown,
        "metadata": {**unknown, "labels": {"a": "b"}},
        "spec": {
            **unknown,
            "containers": [
                container(ports=[{"containerPort": 80, **unknown}], env=[{"name": "A", **unknown}], **unknown)
            ],
            "initContainers": [container("init", **unknown)],
            "volumes": [{"name": "v", **unknown}],
        },
    }
    volumes = [{"name": "w", **unknown}]
    for job in (dijob(coordinator={"template": written}, volumes=volumes), replicated({"ps": {"template": written}})):
        await admin.create(resource_of(job), job, namespace)

        stored = await admin.get(resource_of(job), namespace, "job")

        assert stored["spec"] == job["spec"]


async def test_unknown_fields_outside_of_templates_are_pruned(
    served: ControlPlane, namespace: str, admin: Admin
) -> None:
    job = aitrainingjob(cleanPodPolcy="None", replicaSpecs={"ps": replica(replcas=2)})

    stored = await admin.create(AITJ, job, namespace)

    assert stored["spec"] == {"replicaSpecs": {"ps": replica()}}


async def test_null_is_the_same_as_absent(served: ControlPlane, namespace: str, admin: Admin) -> None:
    job = replicated({"ps": replica(container("aitj-a", env=None), minReplicas=None)})

    stored = await admin.create(AITJ, job, namespace)

    assert stored["spec"] == {"replicaSpecs": {"ps": replica(container("aitj-a"))}}


async def test_a_next_line_in_an_annotation_survives(served: ControlPlane, namespace: str, admin: Admin) -> None:
    annotations = {"note": "one\x85two\u2028three"}
    await admin.create(AITJ, aitrainingjob(metadata={"annotations": annotations}), namespace)

    stored = await admin.get(AITJ, namespace, "job")

    assert stored["metadata"]["annotations"] == annotations


async def test_a_status_is_written_only_through_its_subresource(
    served: ControlPlane, namespace: str, admin: Admin
) -> None:
    stored = await admin.create(AITJ, aitrainingjob() | {"status": {"phase": "Succeed"}}, namespace)

    assert "status" not in stored


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"t": {"replicas": 101}}, "<job>-<replica>-<index> may have 63", id="index-makes-a-name-too-long"),
        pytest.param({"a_b": replica()}, "a replica name consists of", id="new-name-is-illegal"),
        pytest.param({"T": replica()}, "differ only in case", id="new-name-differs-only-in-case"),
        pytest.param({"t": {"replicas": 0}}, "no replica has a pod", id="last-pod-is-taken-away"),
        pytest.param({"t": {"replicas": 1}}, "2 is more than replicas (1)", id="replicas-below-minimum"),
        pytest.param({"t": {"maxReplicas": 1}}, "1 is less than replicas (2)", id="maximum-below-replicas"),
        pytest.param(
            {"u": {"replicas": 10_000}}, "all roles add up to 10002, and a job", id="too-many-replicas-in-all"
        ),
    ],
)
async def test_an_edit_is_checked_like_a_new_job(
    change: Manifest, says: str, served: ControlPlane, namespace: str, admin: Admin
) -> None:
    job = replicated({"t": replica(replicas=2, minReplicas=2), "u": replica(replicas=0)}, "a" * 58)
    await admin.create(AITJ, job, namespace)

    with pytest.raises(Refused) as refused:
        await admin.patch(AITJ, namespace, "a" * 58, {"spec": {"replicaSpecs": change}})

    assert says in refused.value.message


@pytest.mark.parametrize("job", [pytest.param(dijob, id="dijob"), pytest.param(aitrainingjob, id="aitrainingjob")])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"managedBy": "example.com/a"}, id="given"),
        pytest.param({"managedBy": "example.com/a"}, {"managedBy": "example.com/b"}, id="changed"),
        pytest.param({"managedBy": "example.com/a"}, {"managedBy": None}, id="taken-away"),
    ],
)
async def test_who_drives_a_job_is_settled_when_it_is_created(
    before: Manifest,
    after: Manifest,
    job: Callable[..., Manifest],
    served: ControlPlane,
    namespace: str,
    admin: Admin,
) -> None:
    made = job(**before)
    stored = await admin.create(resource_of(made), made, namespace)

    with pytest.raises(Refused) as refused:
        await admin.patch(resource_of(made), namespace, "job", {"spec": after})

    assert "spec.managedBy: Invalid value: is settled when the job is created" in refused.value.message
    assert stored["spec"].get("managedBy") == before.get("managedBy")


OLD = Resource("old.example.com", "v1", "oldjobs", "OldJob")
OLD_LARGE = Resource("large.example.com", "v1", "largejobs", "LargeJob")

BAD_FROM_BEFORE: dict[str, Manifest] = {
    "1st": {"replicaSpecs": {"t": replica()}},
    "a" * 61: {"replicaSpecs": {"t": replica()}},
    "empty": {"replicaSpecs": {}},
    "no-pods": {"replicaSpecs": {"t": replica(replicas=0)}},
    "twice": {"replicaSpecs": {"PS": replica(), "ps": replica()}},
    "illegal": {"replicaSpecs": {"my_ps": replica(), "": replica()}},
    "many": {"replicaSpecs": {"t": replica(replicas=6000), "u": replica(replicas=6000)}},
    "bounds": {"replicaSpecs": {"t": replica(minReplicas=2, maxReplicas=0)}},
    "words": {"replicaSpecs": {"t": replica()}, "restartingExitCode": "never", "priority": "very high"},
    "templates": {"replicaSpecs": {"a": {"template": "b"}, "c": {"template": template(container(), container())}}},
}


async def test_a_bad_job_from_before_our_definitions_can_be_told_so_annotated_and_deleted(
    plane: ControlPlane, namespace: str, admin: Admin
) -> None:
    resource = await _stored_before(OLD, BAD_FROM_BEFORE, plane, admin, namespace)

    for name in BAD_FROM_BEFORE:
        told = await admin.set_status(resource, namespace, name, _status("Pending", "it is bad"))
        await admin.patch(resource, namespace, name, {"metadata": {"annotations": {"seen": "yes"}}})
        await admin.delete(resource, namespace, name)

        assert told["status"]["phase"] == "Pending"


async def test_too_many_replicas_from_before_may_be_lowered_and_not_raised(
    plane: ControlPlane, namespace: str, admin: Admin
) -> None:
    many = {"many": BAD_FROM_BEFORE["many"]}
    resource = await _stored_before(OLD_LARGE, many, plane, admin, namespace)

    await admin.patch(resource, namespace, "many", {"spec": {"replicaSpecs": {"t": {"replicas": 5500}}}})
    with pytest.raises(Refused, match="add up to 11501, and a job may have 10000"):
        await admin.patch(resource, namespace, "many", {"spec": {"replicaSpecs": {"t": {"replicas": 5501}}}})


async def _stored_before(
    resource: Resource, jobs: dict[str, Manifest], plane: ControlPlane, admin: Admin, namespace: str
) -> str:
    """Stores jobs by a definition without a schema, then applies the one of AITrainingJob."""
    definition = crd.crd(msgspec.structs.replace(DEFINITIONS[1], resource=resource, short_name=""))
    name = f"{resource.api_version}/{resource.plural}"
    await asyncio.to_thread(plane.apply, json.dumps(_without_schema(definition)))
    for job, spec in jobs.items():
        await admin.create(name, _old_job(resource, job, spec), namespace)
    await asyncio.to_thread(plane.apply, json.dumps(definition))
    await eventually(lambda: _expect_schema(resource, admin, namespace))
    return name


def _old_job(resource: Resource, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


async def test_declared_replicas_are_at_most_2000_and_have_no_managed_fields_each(
    served: ControlPlane, admin: Admin, namespace: str
) -> None:
    """di-server adds and removes single replicas by merge patches."""
    job, at = dijob("rl"), "2026-01-01T00:00:00Z"
    await admin.create(resource_of(job), job, namespace)

    async def declare(members: Manifest) -> Manifest:
        change = {"status": {"declared": {"members": members}}}
        return await admin.patch(resource_of(job), namespace, "rl", change, subresource="status")

    await declare({f"rl-collector-{i}": {"role": "collector", "at": at} for i in range(2000)})
    stored = await declare({"rl-collector-0": None, "rl-learner-0": {"role": "learner", "at": at}})

    assert len(stored["status"]["declared"]["members"]) == 2000
    assert {"rl-collector-0", "rl-collector-1", "rl-learner-0"} & stored["status"]["declared"]["members"].keys() == {
        "rl-collector-1",
        "rl-learner-0",
    }
    assert len(json.dumps(stored["metadata"]["managedFields"])) < 2000
    with pytest.raises(Refused, match="must have at most 2000"):
        await declare({"rl-collector-0": {"role": "collector", "at": at}})


def _without_schema(definition: Manifest) -> Manifest:
    """The definition as AITrainingJob's ancestor had it."""
    spec = definition["spec"]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {**definition, "spec": {**spec, "versions": [{**spec["versions"][0], "schema": schema}]}}


async def _expect_schema(resource: Resource, admin: Admin, namespace: str) -> None:
    """The API server takes a moment until it uses a schema that changed."""
    path = path_of(f"{resource.api_version}/{resource.plural}", namespace)
    said = ""
    try:
        await admin.request("POST", path, _old_job(resource, "new", {}), query={"dryRun": "All"})
    except Refused as refused:
        said = refused.message
    assert "spec.replicaSpecs: Required value" in said


def _status(phase: str, message: str) -> Manifest:
    conditions = [{"type": phase, "status": "True", "message": message}]
    return {"phase": phase, "conditions": conditions, "summary": {"ready": "0/1", "message": message}}
