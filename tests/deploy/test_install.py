"""An installation from its first command to its last, as the README's walk-through types it."""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from deploy.manager import VARIANTS, Variant
from testbed.admin import Admin, eventually
from testbed.operator import REPOSITORY
from testbed.plane import ControlPlane, KubectlFailed
from tests.deploy.conftest import NodeProcess, on_this_machine
from tests.manifests.build import coordinated, template

Object = dict[str, Any]

EXAMPLES = REPOSITORY / "examples"
PATIENCE = 120.0
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
    plane.kubectl(
        "delete", "--ignore-not-found", "--filename=-", input="\n---\n".join(manifests.values()), timeout=PATIENCE
    )
    for what in ("namespace", "crd", "clusterrole", "clusterrolebinding"):
        assert not re.search(r"\bdi-|opendilab|nervex", plane.kubectl("get", what, "--output=name"))
    assert plane.kubectl("get", "pod", "--all-namespaces", "--output=name") == ""


@pytest.fixture
def namespace(plane: ControlPlane, installed: dict[Variant, str]) -> str:
    """Where the walk-through is: nobody says a namespace."""
    return "default"


async def finished(admin: Admin, variant: Variant, job: str) -> Object:
    def is_finished(job: Object) -> bool:
        return any(each["type"] == "Finished" and each["status"] == "True" for each in job["status"]["conditions"])

    resource = f"{variant.group}/v1alpha1/{variant.scheme}s"
    return await admin.wait_for(resource, "default", job, is_finished, timeout=PATIENCE)


async def children_gone(admin: Admin, variant: Variant, job: str) -> None:
    """No pod and no service of the job is left."""
    labels = f"{variant.scheme}-name={job}"
    for resource in ("pods", "services"):
        await admin.wait_list(resource, "default", lambda found: not found, labels=labels, timeout=PATIENCE)


@each_variant
def test_three_programs_run_as_the_seed_prints_it(
    plane: ControlPlane, installed: dict[Variant, str], variant: Variant
) -> None:
    lines = plane.kubectl("get", "pod", f"--namespace={variant.namespace}", "--no-headers").splitlines()
    rows = [re.sub(r"-[a-z0-9]+-[a-z0-9]{5}$", "", line.split()[0]) for line in lines]

    assert rows == [f"{variant.prefix}-{program}" for program in ("operator", "server", "webhook")]
    assert all(line.split()[1:4] == ["1/1", "Running", "0"] for line in lines), lines


@each_variant
async def test_pods_of_an_installation_meet_the_standard_that_its_namespace_enforces(
    admin: Admin, node: NodeProcess, variant: Variant
) -> None:
    """Asked without running them: on this machine they would be refused as processes of root."""
    bodies = list(yaml.safe_load_all(variant.file.read_text()))
    (labels,) = [body["metadata"]["labels"] for body in bodies if body["kind"] == "Namespace"]
    name = f"{variant.namespace}-asked"
    await admin.create("namespaces", {"metadata": {"name": name, "labels": labels}})
    await admin.wait_for("serviceaccounts", name, "default", lambda _: True)

    for body in bodies:
        if body["kind"] == "Deployment":
            spec = {**body["spec"]["template"]["spec"], "serviceAccountName": "default"}
            pod = {"metadata": {"name": "asked"}, "spec": spec}
            asked = await admin.request("POST", f"/api/v1/namespaces/{name}/pods?dryRun=All", pod)
            assert asked["metadata"]["name"] == "asked"
    await admin.delete("namespaces", None, name)
    await admin.wait_gone("namespaces", None, name)


@each_variant
def test_what_was_created_can_be_applied(plane: ControlPlane, installed: dict[Variant, str], variant: Variant) -> None:
    said = plane.kubectl("apply", "--filename=-", input=installed[variant])

    assert said.count("deployment.apps/") == 3


async def test_a_serial_job_lives_from_creation_to_clean_up(plane: ControlPlane, admin: Admin, namespace: str) -> None:
    manifest = (EXAMPLES / "dijob-serial.yaml").read_text().replace("sleep 10", "sleep 0.1")
    await asyncio.to_thread(plane.kubectl, "create", "--filename=-", input=manifest)
    job = await finished(admin, VARIANTS[0], "serial-example")

    assert job["status"]["phase"] == "Succeeded"
    assert job["spec"]["cleanPodPolicy"] == "Running"
    said = await asyncio.to_thread(plane.kubectl, "logs", "serial-example-coordinator")
    assert said.startswith("coordinator at serial-example-coordinator.default:22273")

    await asyncio.to_thread(plane.kubectl, "delete", "dijob", "serial-example")
    await children_gone(admin, VARIANTS[0], "serial-example")


class Walk(NamedTuple):
    """What a user of the ancestor has typed and seen: nervex-operator's guide, and DI-orchestrator's after it."""

    variant: Variant
    example: str
    job: str
    standing: tuple[str, ...]
    """Those that the operator makes by itself."""

    @property
    def resource(self) -> str:
        return f"{self.variant.scheme}.{self.variant.group}"

    @property
    def coordinator(self) -> str:
        return f"{self.job}-coordinator"

    def rows(self, *roles: str) -> list[str]:
        return sorted(f"{self.job}-{role} 1/1 Running" for role in (*self.standing, *roles))

    def manifests(self, until: Path) -> list[str]:
        """The documents of the example, in a hurry, but not over before there is the file ``until``. All pods share
        this machine's network, as hostNetwork says."""
        bodies = list(yaml.safe_load_all((EXAMPLES / self.example).read_text()))
        for body in bodies:
            for role in body["spec"].values():
                if isinstance(role, dict):
                    spec = role["template"]["spec"]
                    spec |= {"hostNetwork": True, "terminationGracePeriodSeconds": 5}
                    hurry = {"MOCK_PACE": "0.1", "MOCK_UNTIL": str(until)}
                    spec["containers"][0]["env"] = [{"name": name, "value": value} for name, value in hurry.items()]
        return [yaml.safe_dump(body) for body in bodies]


WALKS = (
    Walk(VARIANTS[0], "dijob-mock.yaml", "dijob-example-1", ("coordinator",)),
    Walk(VARIANTS[1], "nervexjob-mock.yaml", "nervexjob-example-1", ("aggregator", "coordinator")),
)
STORY = (
    (
        r"Recevied replicas response from server {{'namespace': 'default', 'coordinator': '{job}-coordinator', "
        r"'collectors': \['{job}-collector-\w+\.default:\d+', '{job}-collector-\w+\.default:\d+'\], "
        r"'learners': \['{job}-learner-\w+\.default:\d+', '{job}-learner-\w+\.default:\d+'\]}}"
    ),
    r"try to connect to {job}-collector-\w+\.default:\d+",
    r"Have connected [12] collectors, [12] learners, match limit requests\.",
    r"Start\.\.\.",
    r"learner task\(learner_task_PID.*\) put into queue",
    r"send data\(",
)
FIRST_OF_ALL = (
    r"try to connect to {job}-aggregator\.default:\d+",
    r"Successed to connect to {job}-aggregator\.default:\d+",
    r"have connected to aggregator",
)
GIVEN_BACK = r"send delete and received {{.*'collectors': \['{job}-collector-\w+\.default:\d+'\], 'learners': \[\]}}"


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.variant.prefix)
async def test_the_walk_through_works_line_by_line(
    plane: ControlPlane, admin: Admin, installed: dict[Variant, str], walk: Walk, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"
    *configs, manifest = walk.manifests(until=enough)
    for config in configs:
        namespace = f"--namespace={walk.variant.namespace}"
        said = await typed(plane, "create", "--filename=-", namespace, input=config)
        assert said == f"aggregatorconfig.{walk.variant.group}/aggregator-config created\n"
    said = await typed(plane, "create", "--filename=-", input=manifest)
    assert said == f"{walk.resource}/{walk.job} created\n"

    # one of two collectors is given back by the coordinator
    await seen(plane, walk.rows("collector", "learner", "learner"))
    columns = "--output=custom-columns=:metadata.name,:metadata.creationTimestamp"
    created = dict(line.split() for line in (await typed(plane, "get", "pod", "--no-headers", columns)).splitlines())
    asked_for = [time for name, time in created.items() if name.startswith((f"{walk.job}-coll", f"{walk.job}-learn"))]
    assert created.keys() >= {f"{walk.job}-{role}" for role in walk.standing}
    assert created[walk.coordinator] <= min(asked_for)  # by the second

    # a user asks the server by hand; the coordinator hears of it
    server, token = server_of(installed[walk.variant]), plane.token("admin")
    (added,) = await ask(server, token, "POST", walk.coordinator)
    await seen(plane, walk.rows("collector", "collector", "learner", "learner"))
    await heard(plane, walk.coordinator, rf"currnet list: .*{re.escape(added)}")
    assert await ask(server, token, "DELETE", walk.coordinator) == [added]
    await seen(plane, walk.rows("collector", "learner", "learner"))

    enough.touch()
    job = await finished(admin, walk.variant, walk.job)
    said = await typed(plane, "logs", walk.coordinator)
    assert job["status"]["phase"] == "Succeeded", said
    assert_told(said, [*(FIRST_OF_ALL if "aggregator" in walk.standing else ()), *STORY], walk.job)
    assert re.search(GIVEN_BACK.format(job=walk.job), said), said
    assert said.endswith("[DI parallel pipeline]Your RL agent is converged, the training is over\n")
    # what runs is deleted, what is completed stays
    await seen(plane, [f"{walk.coordinator} 0/1 Completed"])
    await typed(plane, "delete", walk.variant.scheme, walk.job)
    await children_gone(admin, walk.variant, walk.job)


async def typed(plane: ControlPlane, *words: str, input: str = "") -> str:  # noqa: A002 - kubectl's word
    return await asyncio.to_thread(plane.kubectl, *words, input=input)


async def seen(plane: ControlPlane, rows: list[str]) -> None:
    """`kubectl get pod` comes to show these: names without what is random, how many are ready, and the state."""

    async def look() -> None:
        lines = (await typed(plane, "get", "pod", "--no-headers")).splitlines()
        found = [re.sub(r"^(\S+-(?:collector|learner))-\w{5} ", r"\1 ", " ".join(line.split()[:3])) for line in lines]
        assert found == rows

    await eventually(look, timeout=PATIENCE)


async def heard(plane: ControlPlane, pod: str, pattern: str) -> None:
    """`kubectl logs` comes to show this."""

    async def look() -> None:
        assert re.search(pattern, await typed(plane, "logs", pod))

    await eventually(look, timeout=PATIENCE)


async def ask(server: str, token: str, method: str, coordinator: str) -> list[str]:
    """One collector more, or one fewer."""
    body = {"namespace": "default", "coordinator": coordinator, "collectors": {"replicas": 1}}
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.request(method, f"{server}/v1alpha1/replicas", json=body) as response:
            said = await response.json()
    assert said["success"], said
    found: list[str] = said["data"]["collectors"]
    return found


def server_of(manifest: str) -> str:
    """Where the server of an installation listens on this machine."""
    deployments = [body for body in yaml.safe_load_all(manifest) if body["kind"] == "Deployment"]
    containers = [body["spec"]["template"]["spec"]["containers"][0] for body in deployments]
    [port] = [port["containerPort"] for each in containers for port in each["ports"] if port["name"] == "http"]
    return f"http://127.0.0.1:{port}"


def assert_told(said: str, story: Sequence[str], job: str) -> None:
    """All of it, in this order."""
    rest = said
    for words in story:
        found = re.search(words.format(job=job), rest)
        assert found, f"{words} does not come, or not in its place: {said}"
        rest = rest[found.end() :]


def test_a_bad_job_is_refused_by_the_webhook(plane: ControlPlane, namespace: str) -> None:
    volume = {"name": "data", "emptyDir": {}}
    bad = coordinated(template(volumes=[volume]), "bad", volumes=[volume])

    with pytest.raises(KubectlFailed, match=r"spec\.volumes\[0\]\.name: 'data' is also a volume of"):
        plane.kubectl("create", "--filename=-", input=yaml.safe_dump(dict(bad)))


@each_variant
def test_an_image_can_be_named_by_its_digest_as_the_document_says(variant: Variant) -> None:
    image = f"registry.example/ml/trainmaster@sha256:{'0' * 64}"
    document = (REPOSITORY / "docs" / "install.md").read_text()
    [line] = re.findall(r"\n\$ (sed .*) \| kubectl apply", document)
    command = line.replace("install.yaml", variant.file.name)
    environ = {"PATH": os.environ["PATH"], "image": image}
    done = subprocess.run(command, shell=True, cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=True)

    assert set(re.findall(r"image: (.*)", done.stdout)) == {image}
