"""The rights of an operator are exact for each kind: it uses all of them and needs no other. A proxy records its
requests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from deploy import rights
from testbed.admin import Admin, eventually
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import Call, FaultProxy
from tests.faults.world import BATCH_JOBS, PATIENCE
from tests.integration.conftest import TENANT
from tests.integration.scene import AGGREGATORCONFIGS, Chronicle, Job, Scene, add_node
from tests.manifests.build import (
    Manifest,
    agconfig,
    aitrainingjob,
    container,
    crew,
    dijob,
    ditask,
    mlkubejob,
    mx_replica,
    mxjob,
    nervexjob,
    replica,
    task,
)
from trainmaster.core.template import MANAGED_BY
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.lifecycle.environment import MANY_REPLICAS
from trainmaster.wiring.manager import chosen


class Permission(NamedTuple):
    group: str
    resource: str
    verb: str


MLKUBE_GROUPS = ("mxnet.mlkube.io", "mlkube.io")
RBAC = "rbac.authorization.k8s.io"
LEASES: rights.Rights = {("coordination.k8s.io", "leases"): frozenset({"get", "create", "update"}) | rights.WATCH}


def granted(*given: rights.Rights) -> set[Permission]:
    return {
        Permission(group, resource, verb)
        for some in given
        for (group, resource), verbs in some.items()
        for verb in verbs
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
        ditask("tasks", cleanPodPolicy="All"),
        aitrainingjob("ai"),
        nervexjob("nvx", cleanPodPolicy="All"),
        mxjob("mx", runPolicy={"cleanPodPolicy": "All"}),
        *(mlkubejob(group.partition(".")[0], group=group, cleanPodPolicy="All") for group in MLKUBE_GROUPS),
    ):
        job = await scene.create(manifest)
        await job.live()
        async with scene.kubelet():
            await job.childless()


def _is_gone(job: Job) -> bool:
    return not job.stored


class Life(NamedTuple):
    """What jobs of a kind do that uses every right of their operator."""

    kind: str
    make: Callable[..., Manifest]
    clean: Manifest
    """The part of the spec by which nothing is left of a job that has ended."""
    ttl: Manifest
    """The part by which the job is not left either."""
    owned: Sequence[str]
    """What the operator creates, and finds without its label after another operator."""
    taken: Sequence[tuple[str, Manifest, Manifest]]
    """Objects that are in the way, with their resource, and the job that they are in the way of."""
    more: Callable[[Scene, FaultProxy], Awaitable[None]] | None = None


def distributed(name: str, group: str, **spec: Any) -> Manifest:
    """An MxJob with a service: that of its scheduler."""
    types = [crew("SCHEDULER"), crew("SERVER"), crew("WORKER")]
    return mlkubejob(name, group=group, **{"jobMode": "dist", "replicaSpecs": types, "RuntimeId": "id", **spec})


async def lose_a_pod(scene: Scene, proxy: FaultProxy, group: str) -> None:
    """A pod of a batch Job that hangs in Terminating on a lost node is deleted by force."""
    node = f"{scene.namespace[:30]}-lost"
    await add_node(scene.admin, node)
    job = await scene.create(mlkubejob("lost", group=group))
    await job.pods_are_there()
    [pod] = job.slots
    await scene.admin.bind(scene.namespace, pod, node)
    await scene.report("Running", pod)
    await scene.admin.delete("pods", scene.namespace, pod)
    await scene.admin.delete("nodes", None, node)
    await job.until(lambda: pod not in scene.pods(), "its pod is gone")
    await job.delete()


async def stop_a_batch_job(scene: Scene, proxy: FaultProxy, group: str) -> None:
    """One that would be tried again, of a job that has failed."""
    job = await scene.create(mlkubejob("stopped", group=group))
    await job.start()
    (pod,) = job.slots
    await scene.end(pod, 1)
    await job.reach("Done")


async def refuse_a_pod(scene: Scene, proxy: FaultProxy, group: str) -> None:
    """Only an Event of its batch Job says that its pod is refused."""
    baseline = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    await scene.admin.patch("namespaces", None, scene.namespace, baseline)
    worker = crew("WORKER")
    worker["template"]["spec"]["hostPID"] = True
    job = await scene.create(mlkubejob("refused", group=group, replicaSpecs=[worker]))
    await job.says("PodCreateFailed", "True")
    await job.delete()


async def fail_and_lose(scene: Scene, proxy: FaultProxy, group: str) -> None:
    await stop_a_batch_job(scene, proxy, group)
    await refuse_a_pod(scene, proxy, group)
    await lose_a_pod(scene, proxy, group)


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


async def share_addresses(scene: Scene, proxy: FaultProxy, large: Manifest) -> None:
    """A large job, whose pods have the addresses of all others from a ConfigMap."""
    job = await scene.create(large)
    await job.pods_are_there()
    names = [body["metadata"]["name"] for body in await scene.admin.list("configmaps", scene.namespace)]
    [name] = [name for name in names if name.startswith("large-")]
    await gets_its_label_back(scene, "configmaps", name)
    async with scene.kubelet():
        await scene.end(job.slots[0], 1)
        await job.childless()
    await scene.admin.wait_gone("configmaps", scene.namespace, name)


def a_pod(name: str) -> Manifest:
    return {"metadata": {"name": name}, "spec": {"containers": [container()]}}


def a_service(name: str) -> Manifest:
    return {"metadata": {"name": name}, "spec": {"clusterIP": "None"}}


def a_batch_job(name: str) -> Manifest:
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    return {"metadata": {"name": name}, "spec": {"template": template}}


def life_of_mlkube(group: str) -> Life:
    make = partial(distributed, group=group)
    return Life(
        kind=f"mxjob.{group}",
        make=make,
        clean={"cleanPodPolicy": "All"},
        ttl={"ttlSecondsAfterFinished": 2},
        owned=(BATCH_JOBS, "services", "pods"),
        taken=(
            (BATCH_JOBS, a_batch_job("a-worker-id-0"), make("a")),
            ("services", a_service("b-scheduler-id-0"), make("b")),
        ),
        more=partial(fail_and_lose, group=group),
    )


MANY = MANY_REPLICAS + 1
POLICY: Manifest = {"runPolicy": {"ttlSecondsAfterFinished": 2}}
ALL: Manifest = {"cleanPodPolicy": "All"}
PODS = ("pods", "services")
ELASTIC = {"trainer": replica(edlPolicy="Manual")}
LIVES = (
    Life(
        kind="dijob",
        make=dijob,
        clean=ALL,
        ttl=POLICY,
        owned=PODS,
        taken=(
            ("pods", a_pod("a-coordinator"), dijob("a")),
            ("services", a_service("b-coordinator"), dijob("b")),
            ("pods", a_pod("c-learner-0"), ditask("c")),
            ("services", a_service("di-d"), ditask("d")),
        ),
        more=partial(share_addresses, large=ditask("large", task("collector", replicas=MANY), backoffLimit=0, **ALL)),
    ),
    Life(
        kind="nervexjob",
        make=nervexjob,
        clean=ALL,
        ttl=POLICY,
        owned=PODS,
        taken=(
            ("pods", a_pod("a-coordinator"), nervexjob("a")),
            ("services", a_service("b-coordinator"), nervexjob("b")),
        ),
    ),
    Life(
        kind="aitrainingjob",
        make=aitrainingjob,
        clean=ALL,
        ttl={"ttlSecondsAfterFinished": 2},
        owned=PODS,
        taken=(
            ("pods", a_pod("a-trainer-0"), aitrainingjob("a")),
            ("services", a_service("b-trainer-0"), aitrainingjob("b")),
            ("configmaps", {"metadata": {"name": "c-membership"}}, aitrainingjob("c", replicaSpecs=ELASTIC)),
        ),
        more=tell_members,
    ),
    Life(
        kind="mxjob",
        make=mxjob,
        clean={"runPolicy": ALL},
        ttl=POLICY,
        owned=PODS,
        taken=(
            ("pods", a_pod("a-worker-0"), mxjob("a")),
            ("services", a_service("b-worker-0"), mxjob("b")),
        ),
        more=partial(
            share_addresses,
            large=mxjob("large", mxReplicaSpecs={"Worker": mx_replica(replicas=MANY)}, runPolicy=ALL),
        ),
    ),
    *(life_of_mlkube(group) for group in MLKUBE_GROUPS),
)


async def fail(scene: Scene, proxy: FaultProxy, life: Life) -> None:
    """Before a failure is counted, the operator looks whether the namespace is being deleted."""
    job = await scene.create(life.make("failing"))
    await job.start()
    await scene.end(min(job.slots), 1)

    async def has_looked() -> None:
        assert any(call.resource == "namespaces" for call in list(proxy.calls))

    await eventually(has_looked, timeout=PATIENCE)
    await job.delete()


async def end(scene: Scene, life: Life) -> None:
    """One job is removed by its own policies, another by the time that it is kept."""
    job = await scene.create(life.make("cleaned", **life.clean))
    await job.live()
    async with scene.kubelet():
        await job.childless()
    job = await scene.create(life.make("kept", **life.ttl))
    await job.live()
    await job.until(partial(_is_gone, job), "it is gone")


async def find_children_of_another_operator(scene: Scene, life: Life) -> None:
    """Without our label, as another operator creates them."""
    job = await scene.create(life.make("left"))
    await job.pods_are_there()
    for resource in life.owned:
        await gets_its_label_back(scene, resource, min(job.children(resource)))
    await job.delete()


async def gets_its_label_back(scene: Scene, resource: str, name: str) -> None:
    unlabelled = {"metadata": {"labels": dict.fromkeys(MANAGED_BY)}}
    await scene.admin.patch(resource, scene.namespace, name, unlabelled)
    await scene.admin.wait_for(
        resource,
        scene.namespace,
        name,
        lambda body: MANAGED_BY.items() <= body["metadata"].get("labels", {}).items(),
        timeout=PATIENCE,
    )


async def meet_taken_names(scene: Scene, proxy: FaultProxy, life: Life) -> None:
    """Jobs whose names are taken: the operator looks by whom, and says it again and again."""
    for resource, foreign, _ in life.taken:
        await scene.admin.create(resource, foreign, scene.namespace)
    jobs = [await scene.create(manifest) for _, _, manifest in life.taken]
    for job in jobs:
        await job.says("PodCreateFailed", "True")

    async def said_again() -> None:
        assert any(call.resource == "events" and call.method == "PATCH" for call in list(proxy.calls))

    await eventually(said_again, timeout=PATIENCE)
    for job in jobs:
        await job.delete()


async def grant(scene: Scene, kinds: Sequence[ResourceKinds]) -> None:
    """The tenant of the plane is an operator of these kinds, with Leases in the namespace of the test."""
    admin, name = scene.admin, scene.namespace
    cluster_role = {"metadata": {"name": name}, "rules": rights.operator_rules(kinds)}
    role = {"metadata": {"name": name}, "rules": rights.election(kinds)}
    await admin.create(f"{RBAC}/v1/clusterroles", cluster_role)
    await admin.create(f"{RBAC}/v1/clusterrolebindings", binding(TENANT, "ClusterRole", name))
    await admin.create(f"{RBAC}/v1/roles", role, name)
    await admin.create(f"{RBAC}/v1/rolebindings", binding(TENANT, "Role", name), name)


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.kind)
async def test_an_operator_of_a_kind_may_do_what_it_does_and_nothing_else(
    plane: ControlPlane, scene: Scene, life: Life
) -> None:
    everything = all_resource_kinds(Settings())
    own = [each for each in everything if each.name == life.kind]
    enabled = chosen(everything, [life.kind])  # mxjob is a name of three kinds
    await grant(scene, enabled)
    with FaultProxy(plane) as proxy:
        args = [f"--enable-scheme={life.kind}", "--leader-elect"]
        args += [f"--leader-elect-resource-namespace={scene.namespace}"]
        async with OperatorProcess(plane, server=proxy.url, user=TENANT, args=args) as operator:
            await end(scene, life)
            await find_children_of_another_operator(scene, life)
            await fail(scene, proxy, life)
            if life.more:
                await life.more(scene, proxy)
            await meet_taken_names(scene, proxy, life)
            assert await asyncio.to_thread(operator.terminate) == 0
    await scene.admin.delete(f"{RBAC}/v1/clusterrolebindings", None, scene.namespace)

    assert [str(call) for call in proxy.calls if call.code in (401, 403)] == []
    shared = granted(rights.operator(enabled))
    watched = {each for each in shared if each.verb in rights.WATCH and each._replace(verb="watch") in shared}
    # An admission plug-in of some clusters checks it, and no request uses it.
    unasked = {each for each in granted(rights.operator(own)) if each.resource.endswith("/finalizers")}
    allowed = granted(rights.operator(own), LEASES, rights.READ_DEFINITIONS)
    assert used(proxy.calls) == (allowed | watched) - unasked


def test_every_kind_has_a_life_here() -> None:
    assert {life.kind for life in LIVES} == {each.name for each in all_resource_kinds(Settings())}


async def test_a_job_in_kube_system_says_why_it_has_no_pods(
    plane: ControlPlane, admin: Admin, world: Chronicle
) -> None:
    """A policy refuses them; a status that could not be written would leave the job silent."""
    system = Scene(admin, world, "kube-system")
    async with OperatorProcess(plane):
        job = await system.create(dijob("misplaced"))
        message = await job.says("PodCreateFailed", "True")
        await job.delete()

    assert "the operator writes nothing in kube-system" in message
    assert "create the job in another namespace" in message


async def test_an_operator_of_one_namespace_needs_a_role_there_and_touches_nothing_outside(
    plane: ControlPlane, scene: Scene, elsewhere: Scene
) -> None:
    await scene.admin.create(
        f"{RBAC}/v1/rolebindings", binding(TENANT, "ClusterRole", "trainmaster-operator"), scene.namespace
    )
    # An operator of one namespace looks for it there.
    await scene.admin.create(AGGREGATORCONFIGS, agconfig(scene.namespace), scene.namespace)
    alone = [await elsewhere.create(dijob("di")), await elsewhere.create(aitrainingjob("ai"))]

    with FaultProxy(plane) as proxy:
        args = ["--namespace", scene.namespace]
        async with OperatorProcess(
            plane, server=proxy.url, user=TENANT, args=args, election=scene.namespace
        ) as operator:
            await live_all(scene)
            await fail(scene, proxy, LIVES[0])
            assert await asyncio.to_thread(operator.terminate) == 0

    # It asks for nodes and definitions, which are in no namespace, is told that it may not, and does without them.
    of_the_cluster = [call for call in proxy.calls if call.resource in ("nodes", "customresourcedefinitions")]
    assert {(call.resource, call.code) for call in of_the_cluster} == {
        ("nodes", 403),
        ("customresourcedefinitions", 403),
    }
    rest = [call for call in proxy.calls if call not in of_the_cluster]
    assert {call.namespace for call in rest} == {scene.namespace}
    assert [str(call) for call in rest if call.code in (401, 403)] == []
    assert [job.status for job in alone] == [{}, {}]
    assert not elsewhere.pods()
    for job in alone:
        await job.delete()


def binding(user: str, kind: str, role: str) -> Manifest:
    return {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
