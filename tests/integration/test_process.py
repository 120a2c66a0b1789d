"""The operator as a process: what it measures, how it ends, who leads."""

import asyncio
import json
from collections import Counter
from functools import partial

import pytest

from testbed.admin import eventually
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import PATIENCE, Object
from tests.integration.metric import Metrics
from tests.integration.scene import Scene, owner_of
from tests.manifests.build import aitrainingjob, dijob, mx_replica, mxjob, replica
from trainmaster.runtime.controller import RESERVED

LEASES = "coordination.k8s.io/v1/leases"
DIJOBS, AITRAININGJOBS = "dijobs.diengine.opendilab.org", "aitrainingjobs.elasticdeeplearning.ai"

METRICS = {
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds_bucket",
    "workqueue_work_duration_seconds_bucket",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_time_seconds_bucket",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_active_workers",
    "rest_client_requests_total",
    "rest_client_request_duration_seconds_bucket",
    "training_operator_jobs_created_total",
    "training_operator_jobs_successful_total",
    "trainmaster_jobs",
}


# They may be slow, and none crashes here.
PATIENT = ["--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s"]


def electing(plane: ControlPlane, scene: Scene, *args: str) -> OperatorProcess:
    """An operator that competes for the Leases in the namespace of the test."""
    return OperatorProcess(plane, args=[*PATIENT, *args], election=scene.namespace)


def holder_of(lease: Object) -> str:
    holder: str = lease["spec"].get("holderIdentity", "")
    return holder


async def test_metrics_have_the_names_that_dashboards_know_and_count_what_happens(
    plane: ControlPlane, scene: Scene
) -> None:
    async with OperatorProcess(plane) as operator:
        for manifest in (dijob("di"), aitrainingjob("ai")):
            job = await scene.create(manifest)
            await job.live()
        metrics = Metrics(await asyncio.to_thread(operator.metrics))

    assert metrics.names >= METRICS
    for kind in ("dijob", "aitrainingjob"):
        assert metrics.total("workqueue_adds_total", name=kind) > 0
        assert metrics.total("controller_runtime_reconcile_total", controller=kind, result="success") > 0
        assert metrics.total("controller_runtime_reconcile_errors_total", controller=kind) == 0
        assert metrics.total("controller_runtime_max_concurrent_reconciles", controller=kind) == 32 + RESERVED
    # One service and one pod for each of the two, and some events.
    assert metrics.total("rest_client_requests_total", method="POST", code="201") >= 4
    # Running and the end of each at least; what comes before may be stored together with it.
    assert metrics.total("trainmaster_status_writes_total") >= 4
    assert metrics.total("trainmaster_actions_total", verb="create", resource="pods") >= 2


async def test_jobs_are_counted_as_the_training_operator_counted_them(plane: ControlPlane, scene: Scene) -> None:
    words = ("created", "restarted", "successful", "failed", "deleted")

    async def counted(operator: OperatorProcess) -> list[float]:
        metrics = Metrics(await asyncio.to_thread(operator.metrics))
        labels = {"job_namespace": scene.namespace, "framework": "mxnet"}
        return [metrics.total(f"training_operator_jobs_{word}_total", **labels) for word in words]

    async def is_counted(operator: OperatorProcess, *expected: int) -> None:
        async def probe() -> None:  # what is stored is seen by us before the operator hears that it is
            assert await counted(operator) == [*map(float, expected)]

        await eventually(probe)

    again = {"replicas": 1, "restartPolicy": "OnFailure"}
    roles = {"Scheduler": mx_replica(), "Server": mx_replica(), "Worker": mx_replica(**again)}
    async with OperatorProcess(plane) as operator:
        good, bad = [await scene.create(mxjob(name, mxReplicaSpecs=roles)) for name in ("good", "bad")]
        for job in (good, bad):
            await job.start()
        await is_counted(operator, 2, 0, 0, 0, 0)

        async with scene.kubelet():
            await scene.end("good-worker-0", 1)
            await good.reach("Restarting")
            twice = dict.fromkeys(good.slots, 2)  # it says so before the first pod goes
            await good.until(lambda: twice.items() <= scene.incarnations("pods").items(), "all come a second time")
            await good.runs_again()
            await is_counted(operator, 2, 1, 0, 0, 0)

            await scene.end("good-scheduler-0", 0)
            await scene.end("bad-scheduler-0", 1)
            await good.reach("Succeeded")
            await bad.reach("Failed")
        await is_counted(operator, 2, 1, 1, 1, 0)

        for job in (good, bad):
            await job.delete()
        await is_counted(operator, 2, 1, 1, 1, 2)


@pytest.mark.parametrize("elects", [pytest.param(False, id="alone"), pytest.param(True, id="leader-election")])
async def test_sigterm_ends_with_code_0_and_finishes_what_it_has_begun(
    plane: ControlPlane, scene: Scene, elects: bool
) -> None:
    async with electing(plane, scene) if elects else OperatorProcess(plane) as operator:
        roles = {"trainer": replica(replicas=3)}
        jobs = [aitrainingjob(f"job-{number}", replicaSpecs=roles) for number in range(20)]
        creating = asyncio.gather(*(scene.create(job) for job in jobs))
        await scene.until(scene.pods, "the first pod is made")
        code = await asyncio.to_thread(operator.terminate)
        log = operator.log
        await creating

    assert code == 0
    assert "Traceback" not in log
    for resource in ("pods", "services"):  # all of a job, or nothing
        children = Counter(owner_of(child) for child in await scene.admin.list(resource, scene.namespace))
        assert set(children.values()) == {3}


async def test_sigterm_gives_the_lease_back_and_the_next_one_takes_it(plane: ControlPlane, scene: Scene) -> None:
    where = (LEASES, scene.namespace, DIJOBS)
    async with electing(plane, scene) as first, electing(plane, scene) as second:
        held = await scene.admin.wait_for(*where, holder_of, timeout=PATIENCE)
        leader, standby = (first, second) if f"_{first.pid}_" in holder_of(held) else (second, first)
        assert f"_{leader.pid}_" in holder_of(held)

        assert await asyncio.to_thread(leader.terminate) == 0
        await scene.admin.wait_for(*where, lambda lease: f"_{standby.pid}_" in holder_of(lease), timeout=PATIENCE)
        job = await scene.create(dijob())
        await job.live()
        assert await asyncio.to_thread(standby.terminate) == 0

    released = await scene.admin.get(*where)
    assert holder_of(released) == ""
    assert released["spec"]["leaseTransitions"] == 1


async def test_a_standby_acts_on_nothing_and_ends_with_code_0(plane: ControlPlane, scene: Scene) -> None:
    where = (LEASES, scene.namespace, AITRAININGJOBS)
    async with electing(plane, scene) as leader:
        held = await scene.admin.wait_for(*where, holder_of, timeout=PATIENCE)
        async with electing(plane, scene) as standby:
            job = await scene.create(aitrainingjob())
            await job.live()
            metrics = Metrics(await asyncio.to_thread(standby.metrics))
            assert await asyncio.to_thread(standby.terminate) == 0

        assert metrics.total("leader_election_master_status") == 0
        assert metrics.total("controller_runtime_reconcile_total") == 0
        assert metrics.total("trainmaster_jobs") == 0  # jobs are shown by the one that drives them
        assert metrics.total("rest_client_requests_total", method="POST") == 0
        still = await scene.admin.get(*where)
        assert holder_of(still) == holder_of(held)
        assert f"_{leader.pid}_" in holder_of(still)


async def test_two_installations_never_drive_the_same_jobs(plane: ControlPlane, scene: Scene) -> None:
    """One for all kinds beside one for DIJobs, as README's `trainmaster operator` beside di-manager.yaml."""
    async with electing(plane, scene, "--enable-scheme=dijob") as installed:
        held = await scene.admin.wait_for(LEASES, scene.namespace, DIJOBS, holder_of, timeout=PATIENCE)
        async with electing(plane, scene) as second:
            for manifest in (dijob(), aitrainingjob()):
                await (await scene.create(manifest)).live()
            log = second.log
            metrics = [Metrics(await asyncio.to_thread(each.metrics)) for each in (installed, second)]

    drove = [
        [kind for kind in ("DIJob", "AITrainingJob") if each.total("trainmaster_status_writes_total", kind=kind)]
        for each in metrics
    ]
    assert drove == [["DIJob"], ["AITrainingJob"]]
    waits = [json.loads(line) for line in log.splitlines() if "waiting for the lease" in line]
    assert [(line["lease"], line["holder"]) for line in waits] == [(f"{scene.namespace}/{DIJOBS}", holder_of(held))]


async def test_an_operator_of_all_namespaces_leaves_the_others_to_their_own(
    plane: ControlPlane, scene: Scene, elsewhere: Scene
) -> None:
    async with electing(plane, elsewhere, f"--delegated-namespace={scene.namespace}") as everywhere:
        async with electing(plane, scene, f"--namespace={scene.namespace}") as own:
            await eventually(partial(leaves, everywhere, scene, DIJOBS, AITRAININGJOBS), timeout=PATIENCE)
            for manifest in (dijob(), aitrainingjob("first"), aitrainingjob("second")):
                await (await scene.create(manifest)).live()
            await (await elsewhere.create(dijob())).live()
            metrics = [Metrics(await asyncio.to_thread(each.metrics)) for each in (own, everywhere)]
            assert await asyncio.to_thread(own.terminate) == 0
        job = await scene.create(dijob("later"))
        await job.live()

    drove = [
        [kind for kind in ("DIJob", "AITrainingJob") if each.total("trainmaster_status_writes_total", kind=kind)]
        for each in metrics
    ]
    assert drove == [["DIJob", "AITrainingJob"], ["DIJob"]]


async def test_the_lease_of_a_stranger_stops_no_job(plane: ControlPlane, scene: Scene, elsewhere: Scene) -> None:
    """Kubernetes' role edit includes Leases, and the namespace was not delegated."""
    spec = {"holderIdentity": "stranger", "leaseDurationSeconds": 3600}
    await scene.admin.create(LEASES, {"metadata": {"name": AITRAININGJOBS}, "spec": spec}, scene.namespace)
    async with electing(plane, elsewhere) as everywhere:
        await (await scene.create(aitrainingjob())).live()

        assert f"--delegated-namespace={scene.namespace}" in everywhere.log


async def leaves(operator: OperatorProcess, scene: Scene, *names: str) -> None:
    """It says that the jobs of these Leases are driven by those who hold them."""
    where = (LEASES, scene.namespace)
    leases = [await scene.admin.wait_for(*where, name, holder_of, timeout=PATIENCE) for name in names]
    lines = [json.loads(line) for line in operator.log.splitlines() if "its jobs are not reconciled here" in line]
    said = {(line["lease"], line["holder"]) for line in lines}
    assert said >= {(f"{scene.namespace}/{name}", holder_of(held)) for name, held in zip(names, leases, strict=True)}


async def test_a_namespace_of_leases_that_does_not_exist_ends_the_operator_with_a_sentence(plane: ControlPlane) -> None:
    args = ["--leader-elect=true", "--leader-elect-resource-namespace=nowhere"]
    async with OperatorProcess(plane, args=args, user="admin", is_waited_for=False) as operator:
        assert await asyncio.to_thread(operator.wait) == 1
        log = operator.log

    assert "the namespace nowhere does not exist; create it, or choose another" in log
