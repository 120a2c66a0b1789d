"""deploy/rbac.yaml is exact: what it allows is used, and what is used it allows. Shown by the record of a proxy."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import pytest
import yaml

from testbed.admin import Admin, eventually
from testbed.operator import RBAC, OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import Call, FaultProxy
from tests.faults.world import BATCH_JOBS, PATIENCE
from tests.integration.conftest import TENANT
from tests.integration.scene import AGGREGATORCONFIGS, Chronicle, Job, Scene
from tests.manifests.build import agconfig, aitrainingjob, container, dijob, mlkubejob, mxjob, nervexjob, replica
from trainmaster.core.template import MANAGED_BY


class Permission(NamedTuple):
    group: str
    resource: str
    verb: str


MLKUBE_GROUPS = ("mxnet.mlkube.io", "mlkube.io")

# Needed by an admission plug-in of some clusters, not by a request of ours; rbac.yaml says so beside it.
UNASKED = {
    Permission("elasticdeeplearning.ai", "aitrainingjobs/finalizers", "update"),
    Permission("kubeflow.org", "mxjobs/finalizers", "update"),
    *(Permission(group, "mxjobs/finalizers", "update") for group in MLKUBE_GROUPS),
}


def granted(whom: str = "trainmaster-operator") -> set[Permission]:
    """What deploy/rbac.yaml allows to the operator, or to di-server."""
    bodies = [body for body in yaml.safe_load_all(RBAC.read_text()) if body["metadata"]["name"].startswith(whom)]
    roles = [body for body in bodies if body["kind"] in ("Role", "ClusterRole")]
    return {
        Permission(group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(calls: Iterable[Call]) -> set[Permission]:
    """What these requests need."""
    return {Permission(_group(call), _resource(call), _verb(call)) for call in calls}


def _group(call: Call) -> str:
    parts = call.path.strip("/").split("/")
    return parts[1] if parts[0] == "apis" else ""


def _resource(call: Call) -> str:
    return f"{call.resource}/{call.subresource}" if call.subresource else call.resource


def _verb(call: Call) -> str:
    match call.method:
        case "GET" if call.is_watch:
            return "watch"
        case "GET":
            return "get" if call.name else "list"
        case "DELETE" if not call.name:
            return "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[call.method]


async def live_all(scene: Scene) -> None:
    """A whole life of each kind."""
    for manifest in (
        dijob("di", cleanPodPolicy="All"),
        aitrainingjob("ai"),
        nervexjob("nvx", cleanPodPolicy="All"),
        mxjob("mx", runPolicy={"cleanPodPolicy": "All"}),
        *(mlkubejob(group.partition(".")[0], group=group, cleanPodPolicy="All") for group in MLKUBE_GROUPS),
    ):
        job = await scene.create(manifest)
        await job.live()
        async with scene.kubelet():
            await job.childless()


async def outlive(scene: Scene) -> None:
    """Jobs that are not kept after their end."""
    ttl: dict[str, Any] = {"ttlSecondsAfterFinished": 2}
    batched = [mlkubejob(f"{group.partition('.')[0]}-kept", group=group, **ttl) for group in MLKUBE_GROUPS]
    rl = [make(f"{word}-kept", runPolicy=ttl) for word, make in (("di", dijob), ("nvx", nervexjob))]
    for manifest in (aitrainingjob("kept", **ttl), mxjob("mx-kept", runPolicy=ttl), *rl, *batched):
        job = await scene.create(manifest)
        await job.live()
        await job.until(partial(_is_gone, job), "it is gone")


async def stop_a_batch_job(scene: Scene) -> None:
    """One that would be tried again, of a job that has failed."""
    job = await scene.create(mlkubejob("stopped"))
    await job.start()
    (pod,) = job.slots
    await scene.end(pod, 1)
    await job.reach("Done")


def _is_gone(job: Job) -> bool:
    return not job.stored


async def tell_members(scene: Scene, proxy: FaultProxy) -> None:
    """An elastic job, whose pods are told who takes part."""
    job = await scene.create(aitrainingjob("elastic", replicaSpecs={"trainer": replica(edlPolicy="Manual")}))
    await job.start()

    async def is_told() -> None:
        assert any(call.resource == "configmaps" and call.method == "PATCH" for call in list(proxy.calls))

    await eventually(is_told, timeout=PATIENCE)
    async with scene.kubelet():
        await scene.end("elastic-trainer-0", 0)
        await job.reach("Succeed")


async def find_children_of_another_operator(scene: Scene) -> None:
    """A pod and a service without our label, as another operator creates them."""
    job = await scene.create(mxjob("left"))
    await job.pods_are_there()
    unlabelled = {"metadata": {"labels": dict.fromkeys(MANAGED_BY)}}
    ours = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
    for resource in ("pods", "services"):
        names = [body["metadata"]["name"] for body in await scene.admin.list(resource, scene.namespace, labels=ours)]
        name = next(name for name in names if name.startswith("left-"))
        await scene.admin.patch(resource, scene.namespace, name, unlabelled)
        await scene.admin.wait_for(
            resource,
            scene.namespace,
            name,
            lambda body: MANAGED_BY.items() <= body["metadata"]["labels"].items(),
            timeout=PATIENCE,
        )
    await job.delete()


async def meet_taken_names(scene: Scene) -> list[Job]:
    """Jobs whose names are taken: the operator looks by whom, and says it again and again."""
    foreign_pod = {"metadata": {"name": "a-coordinator"}, "spec": {"containers": [container()]}}
    foreign_service = {"metadata": {"name": "b-trainer-0"}, "spec": {"clusterIP": "None"}}
    await scene.admin.create("pods", foreign_pod, scene.namespace)
    await scene.admin.create("services", foreign_service, scene.namespace)
    await scene.admin.create("configmaps", {"metadata": {"name": "c-membership"}}, scene.namespace)
    foreign_template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    foreign_job = {"metadata": {"name": "d-worker-id-0"}, "spec": {"template": foreign_template}}
    await scene.admin.create(BATCH_JOBS, foreign_job, scene.namespace)
    jobs = [
        await scene.create(dijob("a")),
        await scene.create(aitrainingjob("b", replicaSpecs={"trainer": replica()})),
        await scene.create(aitrainingjob("c", replicaSpecs={"trainer": replica(edlPolicy="Manual")})),
        await scene.create(mlkubejob("d", RuntimeId="id")),
    ]
    for job in jobs:
        await job.says("PodCreateFailed", "True")
    return jobs


async def test_the_operator_may_do_what_it_does_and_nothing_else(plane: ControlPlane, scene: Scene) -> None:
    with FaultProxy(plane) as proxy:
        # A lease that nobody had before: it is created, and not only renewed.
        args = ["--leader-elect", "--leader-elect-resource-name=rbac"]
        async with OperatorProcess(plane, server=proxy.url, args=args) as operator:
            await live_all(scene)
            await outlive(scene)
            await stop_a_batch_job(scene)
            await tell_members(scene, proxy)
            await find_children_of_another_operator(scene)
            jobs = await meet_taken_names(scene)

            async def said_again() -> None:
                assert any(call.resource == "events" and call.method == "PATCH" for call in list(proxy.calls))

            await eventually(said_again, timeout=PATIENCE)
            for job in jobs:
                await job.delete()
            assert await asyncio.to_thread(operator.terminate) == 0

    assert [str(call) for call in proxy.calls if call.code in (401, 403)] == []
    assert granted() >= UNASKED
    assert used(proxy.calls) == granted() - UNASKED


@pytest.fixture
async def outside(plane: ControlPlane, admin: Admin, world: Chronicle, namespace: str) -> Scene:
    """Another namespace than that of the test."""
    other = f"{namespace[:30]}-outside"
    await admin.create("namespaces", {"metadata": {"name": other}})
    return Scene(admin, world, other)


async def test_an_operator_of_one_namespace_needs_a_role_there_and_touches_nothing_outside(
    plane: ControlPlane, scene: Scene, outside: Scene
) -> None:
    await scene.admin.create("rbac.authorization.k8s.io/v1/rolebindings", binding(TENANT), scene.namespace)
    # An operator of one namespace looks for it there.
    await scene.admin.create(AGGREGATORCONFIGS, agconfig(scene.namespace), scene.namespace)
    alone = [await outside.create(dijob("di")), await outside.create(aitrainingjob("ai"))]

    with FaultProxy(plane) as proxy:
        args = ["--namespace", scene.namespace]
        async with OperatorProcess(plane, server=proxy.url, user=TENANT, args=args) as operator:
            await live_all(scene)
            assert await asyncio.to_thread(operator.terminate) == 0

    # It asks for nodes, which are in no namespace, is told that it may not, and does without them.
    about_nodes = [call for call in proxy.calls if call.resource == "nodes"]
    assert {call.code for call in about_nodes} == {403}
    rest = [call for call in proxy.calls if call not in about_nodes]
    assert {call.namespace for call in rest} == {scene.namespace}
    assert [str(call) for call in rest if call.code in (401, 403)] == []
    assert [job.status for job in alone] == [{}, {}]
    assert not outside.pods()
    for job in alone:
        await job.delete()


def binding(user: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "trainmaster-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "trainmaster-operator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
