"""The walk-through of mxnet-operator's README, line by line, on an installation of its own: there
`kubectl get mxjobs` means these jobs and no others."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy import manager
from testbed.operator import REPOSITORY, OperatorProcess
from testbed.plane import CONTROLLERS, ControlPlane, User

EXAMPLES = REPOSITORY / "examples"
PROGRAMS = ("Deployment", "Service", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Here the operator is a process of its own, with the account of the installation. No other program is needed."""
DEADLINE = "--timeout=120s"


ACCOUNT = User(f"system:serviceaccount:{manager.MX.namespace}:{manager.MX.name('operator')}")


def installation() -> str:
    """deploy/mx-manager.yaml without its programs. The binding tells the test bed that its own is not needed."""
    bodies = [body for body in manager.bodies(manager.MX) if body["kind"] not in PROGRAMS]
    [binding] = [
        body
        for body in bodies
        if body["kind"] == "ClusterRoleBinding" and body["metadata"]["name"] == manager.MX.name("operator")
    ]
    return yaml.safe_dump_all([*bodies, {**binding, "metadata": {"name": "trainmaster-operator"}}])


@pytest.fixture(scope="module")
def cluster(binaries: Path) -> Iterator[ControlPlane]:
    """With everything that brings pods to their end: those of a batch Job complete."""
    with ControlPlane(binaries=binaries, users={"operator": ACCOUNT}) as plane:
        plane.start_controller_manager((*CONTROLLERS, "job-controller"))
        plane.start_scheduler()
        plane.start_kwok()
        plane.add_nodes(2)
        plane.apply(installation())
        plane.kubectl("wait", "crd/mxjobs.mxnet.mlkube.io", "--for=condition=Established", DEADLINE)
        with OperatorProcess(plane, args=["--enable-scheme=mxjob.mxnet.mlkube.io"]) as operator:
            yield plane
            assert "forbidden" not in operator.log
            assert "Traceback" not in operator.log


def test_create_and_list_jobs(cluster: ControlPlane) -> None:
    created = cluster.kubectl("create", "-f", str(EXAMPLES / "mx_job_local.yaml"))
    cluster.kubectl("wait", "mxjobs/example-local-job", "--for=condition=Finished", DEADLINE)
    listed = cluster.kubectl("get", "mxjobs")

    assert created == "mxjob.mxnet.mlkube.io/example-local-job created\n"
    head, row = listed.splitlines()
    assert head.split() == ["NAME", "MODE", "PHASE", "STATE", "AGE", "READY", "RESTARTS"]
    assert re.fullmatch(r"example-local-job +local +Done +Succeeded +\d+s +0/1 +0 *", row)


def test_create_the_distributed_demo_and_see_its_jobs(cluster: ControlPlane) -> None:
    cluster.kubectl("create", "-f", str(EXAMPLES / "mx_job_dist.yaml"))
    cluster.kubectl("wait", "mxjobs/example-dist-job", "--for=condition=Finished", DEADLINE)
    rows = [line.split() for line in cluster.kubectl("get", "job", "--no-headers").splitlines()]

    jobs = {name: completions for name, _, completions, *_ in rows if name.startswith("example-dist-job")}
    (runtime_id,) = {name.split("-")[-2] for name in jobs}
    assert re.fullmatch(r"[0-9a-z]{4}", runtime_id)
    assert jobs == {
        f"example-dist-job-{replica}": "1/1"
        for replica in (
            f"scheduler-{runtime_id}-0",
            f"server-{runtime_id}-0",
            f"server-{runtime_id}-1",
            f"worker-{runtime_id}-0",
            f"worker-{runtime_id}-1",
            f"worker-{runtime_id}-2",
        )
    }


def test_what_happened_is_told(cluster: ControlPlane) -> None:
    described = cluster.kubectl("describe", "mxjobs", "example-dist-job")

    for reason in ("MxJobCreating", "SuccessfulCreate", "MxJobSucceeded"):
        assert re.search(rf"Normal +{reason} +.*mx-operator", described), described


def test_a_deleted_job_takes_everything_along(cluster: ControlPlane) -> None:
    """With the ancestor, Jobs, pods and service of a job that was deleted while no operator ran stayed for ever."""
    cluster.kubectl("delete", "mxjobs", "example-dist-job", "--cascade=foreground", DEADLINE)

    assert cluster.kubectl("get", "jobs,pods,services", "-l", "mx_job=example-dist-job") == ""
