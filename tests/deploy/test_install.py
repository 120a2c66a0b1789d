"""An installation from its first command to its last, as the README's walk-through types it."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.manager import VARIANTS, Variant
from testbed.admin import Admin
from testbed.operator import REPOSITORY
from testbed.plane import ControlPlane, KubectlFailed
from tests.deploy.conftest import NodeProcess, on_this_machine
from tests.manifests.build import coordinated, template

Object = dict[str, Any]

DIJOBS = "diengine.opendilab.org/v1alpha1/dijobs"
EXAMPLES = REPOSITORY / "examples"
PATIENCE = 60.0
"""Seconds in which a Deployment gets available, or a job ends, on a machine that has much else to do."""

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.prefix)


@pytest.fixture(scope="module")
def installed(plane: ControlPlane, node: NodeProcess) -> Iterator[dict[Variant, str]]:
    """Both manifests, created, side by side; all Deployments are available. In the end they are deleted, and nothing of
    them stays."""
    manifests = {variant: on_this_machine(variant.file.read_text()) for variant in VARIANTS}
    for manifest in manifests.values():
        plane.kubectl("create", "--filename=-", input=manifest)
    available = ("wait", "deployment", "--all", "--for=condition=Available", f"--timeout={PATIENCE:.0f}s")
    for variant in VARIANTS:
        plane.kubectl(*available, f"--namespace={variant.namespace}", timeout=PATIENCE + 10)
    yield manifests
    plane.kubectl("delete", "--filename=-", input="\n---\n".join(manifests.values()), timeout=PATIENCE)
    for what in ("namespace", "crd", "clusterrole", "clusterrolebinding"):
        assert not re.search(r"\bdi-|opendilab|nervex", plane.kubectl("get", what, "--output=name"))
    assert plane.kubectl("get", "pod", "--all-namespaces", "--output=name") == ""


@pytest.fixture
def namespace(plane: ControlPlane, installed: dict[Variant, str]) -> str:
    """Where the walk-through is: nobody says a namespace."""
    return "default"


async def finished(admin: Admin, name: str) -> Object:
    def is_finished(job: Object) -> bool:
        return any(each["type"] == "Finished" and each["status"] == "True" for each in job["status"]["conditions"])

    return await admin.wait_for(DIJOBS, "default", name, is_finished, timeout=PATIENCE)


async def children_gone(admin: Admin, job: str, *, but: frozenset[str] = frozenset()) -> None:
    """No pod and no service of the job is left, but for these."""
    for resource in ("pods", "services"):
        await admin.wait_list(
            resource,
            "default",
            lambda found: {each["metadata"]["name"] for each in found} == but,
            labels=f"dijob-name={job}",
            timeout=PATIENCE,
        )


@each_variant
def test_three_programs_run_as_the_seed_prints_it(
    plane: ControlPlane, installed: dict[Variant, str], variant: Variant
) -> None:
    lines = plane.kubectl("get", "pod", f"--namespace={variant.namespace}", "--no-headers").splitlines()
    rows = [re.sub(r"-[a-z0-9]+-[a-z0-9]{5}$", "", line.split()[0]) for line in lines]

    assert rows == [f"{variant.prefix}-{program}" for program in ("operator", "server", "webhook")]
    assert all(line.split()[1:4] == ["1/1", "Running", "0"] for line in lines), lines


@each_variant
def test_what_was_created_can_be_applied(plane: ControlPlane, installed: dict[Variant, str], variant: Variant) -> None:
    said = plane.kubectl("apply", "--filename=-", input=installed[variant])

    assert said.count("deployment.apps/") == 3


async def test_a_serial_job_lives_from_creation_to_clean_up(plane: ControlPlane, admin: Admin, namespace: str) -> None:
    manifest = (EXAMPLES / "dijob-serial.yaml").read_text().replace("sleep 10", "sleep 0.1")
    await asyncio.to_thread(plane.kubectl, "create", "--filename=-", input=manifest)
    job = await finished(admin, "serial-example")

    assert job["status"]["phase"] == "Succeeded"
    assert job["spec"]["cleanPodPolicy"] == "Running"
    said = await asyncio.to_thread(plane.kubectl, "logs", "serial-example-coordinator")
    assert said.startswith("coordinator at serial-example-coordinator.default:22273")

    await admin.delete(DIJOBS, "default", "serial-example")
    await children_gone(admin, "serial-example")


def walk_through() -> str:
    """examples/dijob-mock.yaml in a hurry. All pods share this machine's network, as hostNetwork says."""
    job = yaml.safe_load((EXAMPLES / "dijob-mock.yaml").read_text())
    for role in ("coordinator", "collector", "learner"):
        spec = job["spec"][role]["template"]["spec"]
        spec |= {"hostNetwork": True, "terminationGracePeriodSeconds": 5}
        spec["containers"][0]["env"] = [{"name": "MOCK_PACE", "value": "0.1"}, {"name": "MOCK_SEED", "value": "0"}]
    return yaml.safe_dump(job)


async def test_a_job_gets_collectors_and_learners_by_di_server(
    plane: ControlPlane, admin: Admin, namespace: str
) -> None:
    await asyncio.to_thread(plane.kubectl, "create", "--filename=-", input=walk_through())
    job = await finished(admin, "dijob-example-1")
    said = await asyncio.to_thread(plane.kubectl, "logs", "dijob-example-1-coordinator")

    assert job["status"]["phase"] == "Succeeded", said
    assert re.search(r"Recevied replicas response from server .*'learners': \['dijob-example-1-learner-", said)
    assert re.search(r"Have connected [12] collectors, [12] learners, match limit requests\.", said)
    assert "send delete and received" in said
    assert "converged, the training is over" in said
    coordinator = "dijob-example-1-coordinator"
    await admin.wait_list(
        "pods",
        "default",
        lambda pods: [pod["metadata"]["name"] for pod in pods] == [coordinator],
        labels="dijob-name=dijob-example-1",
        timeout=PATIENCE,
    )

    await admin.delete(DIJOBS, "default", "dijob-example-1")
    await children_gone(admin, "dijob-example-1")


def test_a_bad_job_is_refused_by_the_webhook(plane: ControlPlane, namespace: str) -> None:
    volume = {"name": "data", "emptyDir": {}}
    bad = coordinated(template(volumes=[volume]), "bad", volumes=[volume])

    with pytest.raises(KubectlFailed, match=r"spec\.volumes\[0\]\.name: 'data' is also a volume of"):
        plane.kubectl("create", "--filename=-", input=yaml.safe_dump(dict(bad)))


@each_variant
def test_another_image_can_be_named_as_the_document_says(variant: Variant) -> None:
    document = (REPOSITORY / "docs" / "install.md").read_text()
    [line] = re.findall(r"\n\$ (sed .*) \| kubectl create", document)
    command = line.replace("di-manager", f"{variant.prefix}-manager")
    done = subprocess.run(command, shell=True, cwd=REPOSITORY, capture_output=True, text=True, check=True)

    images = set(re.findall(r"image: (.*)", done.stdout))
    assert len(images) == 1
    assert images.pop() not in variant.file.read_text()
