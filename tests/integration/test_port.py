"""Pods on the network of their machine: each has a port of its own, whatever becomes of the operator."""

import asyncio
from typing import Any

import pytest

from testbed.admin import Admin
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import FaultProxy, hang
from tests.faults.world import Object
from tests.integration.scene import Job, Scene
from tests.manifests.build import Manifest, aitrainingjob, container, coordinated, template
from trainmaster.lifecycle.port import FIRST, LAST

PORT = {"name": "aitj-24446", "containerPort": 24446}


def trainers(count: int, name: str = "job", **spec: Any) -> Manifest:
    given = template(container("aitj-trainer", ports=[PORT]), hostNetwork=True)
    return aitrainingjob(name, replicaSpecs={"trainer": {"replicas": count, "template": given}}, **spec)


def ports_on_record(job: Job) -> list[int]:
    return [number for _, given in sorted(job.status.get("ports", {}).items()) for number in given.values()]


def host_port(pod: Object) -> int:
    (port,) = pod["spec"]["containers"][0]["ports"]
    assert port["hostPort"] == port["containerPort"]
    number: int = port["hostPort"]
    return number


def env_of(pod: Object) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}


async def test_trainers_of_one_host_have_ports_of_their_own_and_everybody_agrees(
    plane: ControlPlane, scene: Scene
) -> None:
    async with OperatorProcess(plane):
        job = await scene.create(trainers(3))
        await job.start()
        ports, pods, services = ports_on_record(job), job.children("pods"), job.children("services")
        hosts = ",".join(f"{name}.{scene.namespace}:{port}" for name, port in zip(job.slots, ports, strict=True))

        assert len(set(ports)) == 3
        assert all(FIRST <= port <= LAST for port in ports)
        for name, port in zip(job.slots, ports, strict=True):
            assert host_port(pods[name]) == port
            assert [(entry["name"], entry["port"]) for entry in services[name]["spec"]["ports"]] == [
                ("aitj-24446", port)
            ]
            env = env_of(pods[name])
            assert env["TRAININGJOB_PORTS"] == env["TRAINER_PORTS"] == str(port)
            assert env["TRAINER_HOSTS"] == hosts
            assert pods[name]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"

        await job.live()
        assert ports_on_record(job) == []


async def test_a_trainer_that_comes_again_and_one_that_comes_new(plane: ControlPlane, scene: Scene) -> None:
    async with OperatorProcess(plane):
        job = await scene.create(trainers(1))
        await job.start()
        (port,) = ports_on_record(job)

        await scene.let_go("job-trainer-0")
        await job.until(lambda: scene.incarnations("pods")["job-trainer-0"] == 2, "it is there again")
        assert host_port(job.children("pods")["job-trainer-0"]) == port

        await job.edit({"replicaSpecs": {"trainer": {"replicas": 2}}})
        await job.until(lambda: len(job.slots) == 2, "it is to have two")
        await job.start()
        assert ports_on_record(job)[0] == port
        assert host_port(job.children("pods")["job-trainer-1"]) == ports_on_record(job)[1] != port


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(trainers(3), id="AITrainingJob"),
        pytest.param(coordinated(template(hostNetwork=True)), id="DIJob"),
    ],
)
async def test_an_operator_that_dies_between_the_ports_and_the_pods_is_followed_by_one_that_knows_them(
    plane: ControlPlane, scene: Scene, manifest: Manifest
) -> None:
    with FaultProxy(plane) as proxy:
        proxy.inject(hang, method="POST", namespace=scene.namespace, resource="services")
        async with OperatorProcess(plane, server=proxy.url) as operator:
            job = await scene.create(manifest)
            before = await job.until(lambda: ports_on_record(job), "its ports are on record")
            await asyncio.to_thread(operator.kill)
    assert (job.children("pods"), job.children("services")) == ({}, {})

    async with OperatorProcess(plane):
        await job.start()

    assert ports_on_record(job) == before
    assert [host_port(job.children("pods")[name]) for name in job.slots] == before


async def test_a_tenant_that_asks_for_every_port_or_has_all_of_them_keeps_none_from_others(
    plane: ControlPlane, admin: Admin, scene: Scene
) -> None:
    """One job asks for more than its quota, one has all ports by the status of an earlier release, and the pods of one
    are refused."""
    greedy_space, strict_space = (Scene(admin, scene.world, f"{scene.namespace}-{n}") for n in ("greedy", "strict"))
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    await admin.create("namespaces", {"metadata": {"name": greedy_space.namespace}})
    await admin.create("namespaces", {"metadata": {"name": strict_space.namespace, "labels": labels}})
    all_ports = {f"trainer-{number - FIRST}": {"24446": number} for number in range(FIRST, LAST + 1)}
    async with OperatorProcess(plane):
        greedy = await greedy_space.create(trainers(1200, "greedy"))
        old = await greedy_space.create(trainers(1, "old", managedBy="example.com/old"))
        await admin.set_status(old.resource, greedy_space.namespace, "old", {"ports": all_ports})
        late = await greedy_space.create(trainers(1, "late"))
        refused = await strict_space.create(trainers(3, "refused"))
        messages = [await job.says("PodCreateFailed", "True") for job in (greedy, late, refused)]

        other = await scene.create(trainers(2))
        await other.start()
        assert [(ports_on_record(job), job.children("pods")) for job in (greedy, late)] == [([], {}), ([], {})]
        # Nothing is left that operators of later tests are refused or that has all ports.
        for job in (greedy, old, late, refused):
            await admin.delete(job.resource, job.scene.namespace, job.name)

    assert messages[0].startswith("the job needs 1200 host ports, and a job may have 1000 ")
    assert "other jobs of its namespace have 10000, and a namespace may have 2000 " in messages[1]
    assert "violates PodSecurity" in messages[2]
    assert len(set(ports_on_record(other))) == 2
