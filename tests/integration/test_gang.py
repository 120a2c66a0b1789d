"""Gangs and priorities on a real API server that knows PodGroups: what the schedulers are told, and with what rights.

The definitions of the PodGroups are as small as they can be: what is in them is what the schedulers read.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from testbed.admin import Admin, eventually
from testbed.operator import REPOSITORY, OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import FaultProxy
from tests.faults.world import Object
from tests.integration.scene import Chronicle, Job, Scene, owner_of
from tests.integration.test_permission import Permission, used
from tests.manifests.build import TRAINER, aitrainingjob, container, replica, template
from trainmaster.core.ids import Resource
from trainmaster.lifecycle.gang import PLUGINS_GROUP, VOLCANO_GROUP

RBAC = REPOSITORY / "deploy" / "rbac-gang.yaml"
SPEC = {
    "minMember": {"type": "integer", "format": "int32"},
    "minResources": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
    "queue": {"type": "string"},
    "priorityClassName": {"type": "string"},
}


class Dialect(NamedTuple):
    """A scheduler, and how a pod tells it the group that it belongs to."""

    scheduler: str
    resource: Resource
    where: str
    key: str

    @property
    def path(self) -> str:
        return f"{self.resource.api_version}/{self.resource.plural}"


DIALECTS = (
    Dialect("volcano", VOLCANO_GROUP, "annotations", "scheduling.k8s.io/group-name"),
    Dialect("scheduler-plugins-scheduler", PLUGINS_GROUP, "labels", "scheduling.x-k8s.io/pod-group"),
)


def definition(resource: Resource) -> Object:
    spec = {"type": "object", "properties": SPEC}
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": str(resource),
            # The group of the scheduler-plugins is Kubernetes' own, which wants to know who let them in.
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {
            "group": resource.group,
            "names": {"kind": resource.kind, "plural": resource.plural},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@pytest.fixture(scope="module", params=[pytest.param(d, id=d.resource.group) for d in DIALECTS])
def dialect(request: pytest.FixtureRequest, plane: ControlPlane) -> Dialect:
    found: Dialect = request.param
    plane.apply(json.dumps(definition(found.resource)))
    plane.kubectl("wait", "--for=condition=Established", f"crd/{found.resource}")
    plane.apply(RBAC)
    return found


class Watched(NamedTuple):
    """An operator, and all that it asks the API server for."""

    operator: OperatorProcess
    proxy: FaultProxy


@pytest.fixture(scope="module")
def watched(plane: ControlPlane, dialect: Dialect) -> Iterator[Watched]:
    args = ["--gang-scheduler-name", dialect.scheduler]
    with FaultProxy(plane) as proxy, OperatorProcess(plane, server=proxy.url, args=args) as operator:
        yield Watched(operator, proxy)
        assert "defect in trainmaster" not in operator.log


@pytest.fixture
def stage(watched: Watched, admin: Admin, world: Chronicle, namespace: str) -> Scene:
    return Scene(admin, world, namespace)


async def group_of(job: Job, dialect: Dialect, members: int) -> Object:
    """The PodGroup of a job, once it has so many members."""

    def has_members(group: Object) -> bool:
        found: int = group["spec"]["minMember"]
        return found == members

    return await job.scene.admin.wait_for(dialect.path, job.scene.namespace, job.name, has_members)


def versions(*found: Object) -> list[int]:
    """In the order in which they were created, as nobody has changed them since."""
    return [int(each["metadata"]["resourceVersion"]) for each in found]


async def test_a_gang_has_its_group_before_its_first_pod(stage: Scene, dialect: Dialect) -> None:
    job = await stage.create(aitrainingjob("job", replicaSpecs={"worker": replica(replicas=2), "ps": replica()}))
    await job.pods_are_there()

    group = await group_of(job, dialect, 3)
    pods = list(job.children("pods").values())

    assert owner_of(group) == job.uid
    assert versions(group) < [min(versions(*pods))]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {dialect.scheduler}
    assert {pod["metadata"][dialect.where][dialect.key] for pod in pods} == {"job"}


async def test_a_group_grows_with_its_job_and_goes_at_its_end(stage: Scene, dialect: Dialect) -> None:
    asking = container(TRAINER, resources={"requests": {"cpu": "500m"}})
    job = await stage.create(aitrainingjob("job", replicaSpecs={"trainer": replica(asking)}))
    assert (await group_of(job, dialect, 1))["spec"]["minResources"] == {"cpu": "500m"}

    await job.edit({"replicaSpecs": {"trainer": {"replicas": 2}}})
    assert (await group_of(job, dialect, 2))["spec"]["minResources"] == {"cpu": "1"}
    await job.live()

    await stage.admin.wait_gone(dialect.path, stage.namespace, "job")
    assert job.phase == "Succeed"


async def test_a_job_of_another_scheduler_has_no_group(stage: Scene, dialect: Dialect) -> None:
    job = await stage.create(aitrainingjob("job", schedulerName="default-scheduler"))
    await job.pods_are_there()
    await stage.settled()

    groups = await stage.admin.list(dialect.path, stage.namespace)

    assert [group["metadata"]["name"] for group in groups] == ["probe-1"]
    assert {pod["spec"]["schedulerName"] for pod in job.children("pods").values()} == {"default-scheduler"}


async def test_a_group_that_somebody_took_away_comes_again(stage: Scene, dialect: Dialect) -> None:
    job = await stage.create(aitrainingjob("job"))
    await job.start()
    old = await group_of(job, dialect, 1)

    await stage.admin.delete(dialect.path, stage.namespace, "job")

    async def is_there_again() -> None:
        found = await group_of(job, dialect, 1)
        assert found["metadata"]["uid"] != old["metadata"]["uid"]

    await eventually(is_there_again)


async def test_a_group_of_somebody_else_is_not_touched(stage: Scene, dialect: Dialect) -> None:
    foreign = {
        "apiVersion": dialect.resource.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "job"},
        "spec": {"minMember": 7},
    }
    await stage.admin.create(dialect.path, foreign, stage.namespace)

    job = await stage.create(aitrainingjob("job"))
    said = await job.says("PodCreateFailed", "True")

    assert "podgroup" in said
    assert "the name is taken by an object that has no owner" in said
    assert not job.children("pods")
    await job.delete()


async def test_the_rights_are_those_that_are_used(watched: Watched, dialect: Dialect) -> None:
    """The last of the module: what was asked for is on record."""
    role = next(body for body in yaml.safe_load_all(RBAC.read_text()) if body["kind"] == "ClusterRole")
    (rule,) = role["rules"]

    calls = [call for call in watched.proxy.calls if call.resource == "podgroups"]

    assert [str(call) for call in watched.proxy.calls if call.code in (401, 403)] == []
    assert used(calls) == {Permission(dialect.resource.group, "podgroups", verb) for verb in rule["verbs"]}


# --- priorities ---


async def test_a_priority_that_is_a_class_becomes_the_pods_own(scene: Scene, operator: OperatorProcess) -> None:
    await scene.admin.create(
        "scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "urgent"}, "value": 1000, "kind": "PriorityClass"}
    )

    job = await scene.create(aitrainingjob("job", priority="urgent"))
    await job.pods_are_there()

    (pod,) = job.children("pods").values()
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("urgent", 1000)
    assert pod["metadata"]["labels"]["priority"] == "urgent"


async def test_a_priority_that_is_no_class_stays_a_label(scene: Scene, operator: OperatorProcess) -> None:
    job = await scene.create(aitrainingjob("job", priority="whenever"))
    await job.pods_are_there()
    await job.live()

    assert "there is no PriorityClass whenever" in await job.says("PriorityClassFound", "False")
    assert job.condition("PodCreateFailed")["status"] == "False"


async def test_a_template_keeps_its_own_class(scene: Scene, operator: OperatorProcess) -> None:
    own: dict[str, Any] = {"template": template(container(TRAINER), priorityClassName="system-node-critical")}

    job = await scene.create(aitrainingjob("job", priority="whenever", replicaSpecs={"trainer": own}))
    await job.pods_are_there()

    (pod,) = job.children("pods").values()
    assert pod["spec"]["priorityClassName"] == "system-node-critical"


async def test_a_job_that_somebody_else_drives_is_left_alone(scene: Scene, operator: OperatorProcess) -> None:
    job = await scene.create(aitrainingjob("job", managedBy="kueue.x-k8s.io/multikueue"))
    ours = await scene.create(aitrainingjob("ours", managedBy="elasticdeeplearning.ai/trainmaster"))

    await ours.pods_are_there()
    await scene.settled()

    assert job.status == {}
    assert not job.children("pods")
