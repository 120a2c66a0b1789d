"""Admission by a real API server: what it refuses, stores and warns of, whatever becomes of the webhook meanwhile.

There is no Service network here: the configurations of deploy/webhook.yaml are used with URLs.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from cryptography import x509

from testbed.admin import Admin, eventually, path_of
from testbed.answer import Object, Refused
from testbed.certificate import Authority
from testbed.operator import COMMAND, REPOSITORY, OperatorProcess, install
from testbed.plane import ControlPlane, KubectlFailed, User, free_port
from testbed.proxy import FaultProxy
from tests.integration.metric import Metrics
from tests.integration.scene import Scene
from tests.integration.test_permission import Permission, used
from tests.manifests.bad import VERSIONS
from tests.manifests.build import (
    Manifest,
    aitrainingjob,
    container,
    coordinated,
    dijob,
    ditask,
    replica,
    task,
    template,
)
from tests.webhook.handshake import shown
from trainmaster.core.ids import Key, Resource
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.kubeconfig import load_config
from trainmaster.runtime.cluster import Written
from trainmaster.webhook.bundle import trusted_by
from trainmaster.webhook.certificate import material_in
from trainmaster.webhook.keeper import Keeper, Place, Times
from trainmaster.webhook.path import path_of as review_path
from trainmaster.webhook.served import Served
from trainmaster.webhook.server import serve_admission

MANIFEST = REPOSITORY / "deploy" / "webhook.yaml"
WEBHOOK = "webhook"
DIJOBS = "diengine.opendilab.org/v1alpha1/dijobs"
SYSTEM = "trainmaster-system"
SECRET = "trainmaster-webhook-certificate"
CONFIGURATIONS = tuple(
    f"admissionregistration.k8s.io/v1/{phase}webhookconfigurations" for phase in ("mutating", "validating")
)

RUN = container(command=["run"])
WRONG = "spec.volumes[0].name: 'data' is also a volume of spec.coordinator.template; rename one"


def good(name: str = "good", **spec: Any) -> Manifest:
    """A job that nothing is to be said of."""
    return coordinated(template(RUN), name, **spec)


def bad(name: str = "bad", **spec: Any) -> Manifest:
    """A job that the schema takes: only the webhook and the operator know better."""
    return coordinated(template(RUN, volumes=[{"name": "data"}]), name, volumes=[{"name": "data"}], **spec)


def by_url(port: int) -> str:
    """deploy/webhook.yaml, for a webhook on this machine."""
    bodies = list(yaml.safe_load_all(MANIFEST.read_text()))
    for body in bodies:
        for entry in body.get("webhooks", ()):
            entry["clientConfig"] = {"url": f"https://127.0.0.1:{port}{entry['clientConfig']['service']['path']}"}
    return yaml.safe_dump_all(bodies)


class WebhookProcess(OperatorProcess):
    """A real `trainmaster webhook`, with the rights of deploy/webhook.yaml."""

    def __init__(
        self,
        plane: ControlPlane,
        port: int,
        *,
        server: str | None = None,
        args: Sequence[str] = (),
        is_waited_for: bool = True,
    ) -> None:
        super().__init__(plane, server=server, args=args, user=WEBHOOK, is_waited_for=is_waited_for)
        self._port = port

    async def excuse(self) -> str:
        """What /readyz says."""
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{self.health_port}/readyz") as response:
                return await response.text()

    def _command(self) -> list[str | Path]:
        _, _, *options = super()._command()
        return [COMMAND, "webhook", *options, "--bind-address", f"127.0.0.1:{self._port}", *_HOST]


_HOST = ("--certificate-host", "127.0.0.1")


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """A plane of this module's own: what is configured here is asked for every job of a plane."""
    users = {WEBHOOK: User(f"system:serviceaccount:{SYSTEM}:trainmaster-webhook")}
    with ControlPlane(binaries=binaries, users=users) as plane:
        install(plane)
        yield plane


@pytest.fixture(scope="module")
def port(plane: ControlPlane) -> int:
    """Where the API server asks."""
    port = free_port()
    plane.apply(by_url(port))
    return port


@pytest.fixture
async def webhook(plane: ControlPlane, port: int, admin: Admin) -> AsyncIterator[WebhookProcess]:
    async with WebhookProcess(plane, port) as webhook:
        await is_asked(admin)
        yield webhook
        assert "Traceback" not in webhook.log


async def is_asked(admin: Admin) -> None:
    """Until the API server has heard of it."""

    async def look() -> None:
        with pytest.raises(Refused, match="admission webhook"):
            await admin.request("POST", path_of(DIJOBS, "default"), bad(), query={"dryRun": "All"})

    await eventually(look)


# --- what is said ---


async def test_a_bad_job_is_refused_with_path_and_sentence(
    webhook: WebhookProcess, admin: Admin, namespace: str
) -> None:
    with pytest.raises(Refused) as refused:
        await admin.create(DIJOBS, bad(), namespace)

    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert refused.value.message == f'admission webhook "vdijob.kb.io" denied the request: {WRONG}'


@pytest.mark.parametrize("version", VERSIONS)
async def test_too_many_addresses_are_refused_under_both_versions(
    version: str, webhook: WebhookProcess, admin: Admin, namespace: str
) -> None:
    """No rule of the definition can say it: it depends on the namespace and the domain of the cluster."""
    job = ditask("many", task("collector", RUN, replicas=3000)) | {"apiVersion": version}

    with pytest.raises(Refused) as refused:
        await admin.create(f"{version}/dijobs", job, namespace)

    denied = 'admission webhook "vdijob.kb.io" denied the request: '
    said = "spec.tasks: the addresses of 3000 replicas in DI_NODES do not fit into one environment variable (128 KiB)"
    assert refused.value.message.startswith(denied + said)


async def test_kubectl_prints_every_error_on_a_line(
    plane: ControlPlane, webhook: WebhookProcess, namespace: str
) -> None:
    job = bad("two") | {"spec": bad()["spec"] | {"learner": {"template": template(RUN, volumes=[{"name": "data"}])}}}

    with pytest.raises(KubectlFailed) as failed:
        plane.kubectl("create", "-n", namespace, "-f", "-", input=yaml.safe_dump(job))

    said = str(failed.value)
    assert 'The DIJob "two" is invalid:' in said
    assert said.count("* spec.volumes[0].name: 'data' is also a volume of ") == 2


async def test_defaults_are_seen_in_what_is_stored(webhook: WebhookProcess, admin: Admin, namespace: str) -> None:
    stored = await admin.create(DIJOBS, good(), namespace)
    given = await admin.create(DIJOBS, good("given", cleanPodPolicy="All"), namespace)

    assert stored["spec"]["cleanPodPolicy"] == "Running"
    assert given["spec"]["cleanPodPolicy"] == "All"


async def test_a_generated_name_is_judged_as_well(webhook: WebhookProcess, admin: Admin, namespace: str) -> None:
    metadata = {"metadata": {"generateName": "some-"}}
    stored = await admin.create(DIJOBS, good() | metadata, namespace)

    assert stored["spec"]["cleanPodPolicy"] == "Running"
    with pytest.raises(Refused, match="also a volume"):
        await admin.create(DIJOBS, bad() | metadata, namespace)


@pytest.mark.parametrize(
    ("job", "warning"),
    [
        pytest.param(dijob("odd"), "spec.coordinator.template.spec.containers[0].command: is missing", id="DIJob"),
        pytest.param(
            aitrainingjob("odd", replicaSpecs={"ps": replica(container("aitj-main"))}),
            "spec.replicaSpecs.ps.template.spec.containers[0].command: is missing",
            id="AITrainingJob",
        ),
    ],
)
async def test_kubectl_prints_warnings_and_creates_all_the_same(
    plane: ControlPlane, webhook: WebhookProcess, namespace: str, job: Manifest, warning: str
) -> None:
    with pytest.raises(KubectlFailed) as failed:  # it creates the job, and then ends with an error for us to see
        plane.kubectl("create", "-n", namespace, "--warnings-as-errors", "-f", "-", input=yaml.safe_dump(job))

    assert f"Warning: {warning}" in str(failed.value)
    assert "error: 1 warning received" in str(failed.value)
    assert plane.kubectl("get", "-n", namespace, job["kind"], "odd", "-o", "name").strip().endswith("/odd")


async def test_a_good_job_is_not_warned_of(plane: ControlPlane, webhook: WebhookProcess, namespace: str) -> None:
    plane.kubectl("create", "-n", namespace, "--warnings-as-errors", "-f", "-", input=yaml.safe_dump(good()))


async def test_what_was_stored_before_can_be_lived_with(webhook: WebhookProcess, admin: Admin, namespace: str) -> None:
    """Labelled, reported on, changed elsewhere and deleted, but not made worse."""
    webhook.kill()
    await admin.create(DIJOBS, bad("old", cleanPodPolicy="All") | {"metadata": a_meta("old")}, namespace)
    await asyncio.to_thread(webhook._start)
    await is_asked(admin)

    await admin.patch(DIJOBS, namespace, "old", {"metadata": {"labels": {"team": "rl"}}})
    await admin.set_status(DIJOBS, namespace, "old", {"phase": "Created"})
    await admin.patch(DIJOBS, namespace, "old", {"spec": {"cleanPodPolicy": "None"}})
    worse = {"learner": {"template": template(RUN, volumes=[{"name": "data"}])}}
    with pytest.raises(Refused, match=r"is also a volume of spec\.learner\.template") as refused:
        await admin.patch(DIJOBS, namespace, "old", {"spec": worse})
    assert WRONG not in refused.value.message
    await admin.delete(DIJOBS, namespace, "old")
    await admin.patch(DIJOBS, namespace, "old", {"metadata": {"finalizers": None}})
    await admin.wait_gone(DIJOBS, namespace, "old")


def a_meta(name: str) -> Manifest:
    return {"name": name, "finalizers": ["example.org/hold"]}


async def test_a_job_at_its_end_may_be_edited(webhook: WebhookProcess, admin: Admin, namespace: str) -> None:
    await admin.create(DIJOBS, good(), namespace)
    await admin.set_status(DIJOBS, namespace, "good", {"phase": "Succeeded"})

    await admin.patch(DIJOBS, namespace, "good", {"spec": bad()["spec"]})


async def test_reviews_are_counted(webhook: WebhookProcess, admin: Admin, namespace: str) -> None:
    await admin.create(DIJOBS, good(), namespace)
    metrics = Metrics(await asyncio.to_thread(webhook.metrics))

    counted = "trainmaster_admission_requests_total"
    assert metrics.total(counted, phase="mutate", kind="dijob", operation="CREATE", result="allowed") >= 1
    assert metrics.total(counted, phase="validate", kind="dijob", operation="CREATE", result="allowed") == 1
    assert metrics.total(counted, result="failed") == metrics.total(counted, result="bad") == 0
    left = metrics.total("trainmaster_admission_certificate_end_seconds") - time.time()
    assert 60 * 86400 < left <= 90 * 86400


# --- without it ---


async def test_without_the_webhook_jobs_are_stored_and_the_operator_tells(
    webhook: WebhookProcess, operator: OperatorProcess, scene: Scene
) -> None:
    webhook.kill()
    job = await scene.create(bad())

    assert await job.says("Accepted", "False") == WRONG
    assert "cleanPodPolicy" not in job.stored["spec"]


async def test_a_webhook_that_hangs_costs_seconds_and_nobody_else_anything(
    webhook: WebhookProcess, admin: Admin, namespace: str
) -> None:
    webhook.pause()
    try:
        creating = asyncio.ensure_future(admin.create(DIJOBS, good(), namespace))
        pod = {"metadata": {"name": "other"}, "spec": {"containers": [container("main")]}}
        async with asyncio.timeout(4):  # less than the API server waits for us
            await admin.create("pods", pod, namespace)
            await admin.create("configmaps", {"metadata": {"name": "other"}}, namespace)
        assert not creating.done()
        stored = await creating
    finally:
        webhook.resume()

    assert "cleanPodPolicy" not in stored["spec"]


async def test_sigterm_ends_with_code_0(webhook: WebhookProcess) -> None:
    assert await asyncio.to_thread(webhook.terminate) == 0
    assert '"leaving"' in webhook.log


# --- certificates ---


async def empty(admin: Admin) -> None:
    """The Secret as the manifest has it; who empties it asks for a new authority."""
    await admin.patch("secrets", SYSTEM, SECRET, {"data": None})


def authorities(secret: Object) -> tuple[Any, ...]:
    return material_in(secret["data"]).trusted


async def all_trust(admin: Admin, *certificates: object) -> None:
    for resource in CONFIGURATIONS:
        found = await admin.get(resource, None, "trainmaster")
        assert trusted_by(found["webhooks"]) == set(certificates)


async def test_replicas_that_start_at_once_end_with_one_authority(
    plane: ControlPlane, port: int, admin: Admin, namespace: str
) -> None:
    plane.apply(by_url(port))
    await empty(admin)
    replicas = [WebhookProcess(plane, port), *(WebhookProcess(plane, free_port()) for _ in range(2))]
    await asyncio.gather(*(asyncio.to_thread(each.start) for each in replicas))
    try:
        await is_asked(admin)
        trusted = authorities(await admin.get("secrets", SYSTEM, SECRET))
        assert len(trusted) == 1
        await all_trust(admin, *trusted)
        assert sum(each.log.count("certificate authority made") for each in replicas) == 1
    finally:
        for each in replicas:
            each.stop()


async def test_a_manifest_that_is_applied_again_leaves_the_bundle_alone(
    plane: ControlPlane, port: int, webhook: WebhookProcess, admin: Admin
) -> None:
    before = [await admin.get(resource, None, "trainmaster") for resource in CONFIGURATIONS]
    await asyncio.to_thread(plane.apply, by_url(port))
    after = [await admin.get(resource, None, "trainmaster") for resource in CONFIGURATIONS]

    assert [each["webhooks"] for each in after] == [each["webhooks"] for each in before]


async def test_one_that_cannot_be_trusted_says_why_it_is_not_ready(plane: ControlPlane, port: int) -> None:
    """Its Role names the configurations: it may not even look at another."""
    args = ["--validating-configuration=another"]
    async with WebhookProcess(plane, free_port(), args=args, is_waited_for=False) as webhook:

        async def says_why() -> None:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                said = await webhook.excuse()
                assert said.startswith("not ready: ")
                assert '"another" is forbidden' in said
                return
            raise AssertionError("it does not answer yet")

        await eventually(says_why, timeout=30)


ROTATION = Times(look=0.1, settle=1.0, linger=2.0)
CREATORS = 4
LAG = 0.3


class SlowCluster(KubeCluster):
    """An API server that is slow to take a caBundle: whatever is served before it is trusted, is met by somebody."""

    async def patch(
        self, resource: Resource, key: Key, patch: bytes, *, subresource: str = "", strict: bool = False
    ) -> Written:
        await asyncio.sleep(LAG)
        return await super().patch(resource, key, patch, subresource=subresource, strict=strict)


async def test_certificates_are_rotated_under_load_and_no_review_is_missed(
    plane: ControlPlane, port: int, admin: Admin, namespace: str
) -> None:
    """Every review needs a handshake of its own. One that fails would be seen: the API server would store a bad job,
    or a good one without its default."""
    served, stop = Served(), asyncio.Event()
    place = Place(
        secret=Key(SYSTEM, SECRET), hosts=frozenset({"127.0.0.1"}), mutating="trainmaster", validating="trainmaster"
    )
    async with (
        SlowCluster(load_config(kubeconfig=str(plane.kubeconfig(WEBHOOK)))) as cluster,
        serve_admission(f"127.0.0.1:{port}", all_resource_kinds(Settings()), served.context, lambda: True),
    ):
        keeper = Keeper(cluster, place, served, now=lambda: datetime.now(UTC), monotonic=time.monotonic, times=ROTATION)
        await keeper.look()
        assert keeper.trouble == ""
        await is_asked(admin)
        creating = [asyncio.ensure_future(create_on(admin, namespace, number, stop)) for number in range(CREATORS)]
        keeping = asyncio.ensure_future(keeper.run(stop))
        leaves = set()
        for _ in range(2):
            old = authorities(await admin.get("secrets", SYSTEM, SECRET))
            await empty(admin)
            await admin.wait_for("secrets", SYSTEM, SECRET, partial(_is_rotated, old), timeout=60)
            leaves.add(served.leaf)
        stop.set()
        created = sum(await asyncio.gather(*creating))
        await keeping
        await all_trust(admin, *authorities(await admin.get("secrets", SYSTEM, SECRET)))

    assert len(leaves) == 2
    assert created > 20


def _is_rotated(old: tuple[Any, ...], secret: Object) -> bool:
    """There is another authority, and the old one is forgotten."""
    if not secret.get("data"):
        return False
    trusted = authorities(secret)
    return len(trusted) == 1 and trusted != old


async def create_on(admin: Admin, namespace: str, number: int, stop: asyncio.Event) -> int:
    """Good jobs and bad ones, until told to stop; answers how many were as they should be."""
    created = 0
    while not stop.is_set():
        stored = await admin.create(DIJOBS, good(f"good-{number}-{created}"), namespace)
        assert stored["spec"].get("cleanPodPolicy") == "Running", "it was stored without its review"
        with pytest.raises(Refused, match="admission webhook"):
            await admin.create(DIJOBS, bad(), namespace)
        created += 1
    return created


async def test_files_of_somebody_else_are_served_and_nothing_is_written(plane: ControlPlane, tmp_path: Path) -> None:
    """As cert-manager does it: it writes the files, exchanges them, and injects its authority itself."""
    authority, port = Authority(tmp_path), free_port()
    pair = authority.server("tls")
    with FaultProxy(plane) as proxy:
        async with WebhookProcess(plane, port, server=proxy.url, args=["--cert-dir", str(tmp_path)]):
            first = await shown(port)
            authority.server("tls")

            async def exchanged() -> None:
                assert await shown(port) == x509.load_pem_x509_certificate(pair.certificate.read_bytes())

            await eventually(exchanged, timeout=30)
            assert await shown(port) != first
        assert proxy.calls == []


# --- rights ---


def granted() -> set[Permission]:
    roles = [body for body in yaml.safe_load_all(MANIFEST.read_text()) if body["kind"] in ("Role", "ClusterRole")]
    return {
        Permission(group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_the_webhook_may_do_what_it_does_and_nothing_else(
    plane: ControlPlane, port: int, admin: Admin, namespace: str
) -> None:
    await empty(admin)
    with FaultProxy(plane) as proxy:
        async with WebhookProcess(plane, port, server=proxy.url):
            assert authorities(await admin.get("secrets", SYSTEM, SECRET))

    assert [str(call) for call in proxy.calls if call.code in (401, 403)] == []
    assert used(proxy.calls) == granted()


@pytest.mark.parametrize(
    ("resource", "where", "name"),
    [
        pytest.param("secrets", SYSTEM, "another", id="secret"),
        pytest.param("secrets", "kube-system", SECRET, id="namespace"),
        pytest.param(CONFIGURATIONS[0], None, "another", id="mutating"),
        pytest.param(CONFIGURATIONS[1], None, "another", id="validating"),
        pytest.param(DIJOBS, "default", "job", id="job"),
    ],
)
async def test_other_objects_are_out_of_its_reach(
    plane: ControlPlane, port: int, resource: str, where: str | None, name: str
) -> None:
    async with Admin.of(plane, WEBHOOK) as webhook:
        with pytest.raises(Refused, match="forbidden"):
            await webhook.get(resource, where, name)


# --- the manifest ---


def test_the_manifest_asks_for_every_kind_and_for_nothing_else() -> None:
    bodies = [body for body in yaml.safe_load_all(MANIFEST.read_text()) if "webhooks" in body]
    asked = {
        (
            entry["name"],
            entry["clientConfig"]["service"]["path"],
            rule["apiGroups"][0],
            rule["resources"][0],
            *rule["apiVersions"],
        )
        for body in bodies
        for entry in body["webhooks"]
        for rule in entry["rules"]
    }
    # Two kinds that are spelt alike have names with their group, which are domains already.
    served = all_resource_kinds(Settings())
    named = [(each.name if "." in each.name else f"{each.name}.kb.io", each.resources) for each in served]

    assert asked == {
        (f"{phase[0]}{name}", review_path(phase, r[0]), r[0].group, r[0].plural, *(v.version for v in r))
        for phase in ("mutate", "validate")
        for name, r in named
    }


def test_no_entry_can_stop_anybody() -> None:
    entries = [e for body in yaml.safe_load_all(MANIFEST.read_text()) for e in body.get("webhooks", ())]

    for entry in entries:
        assert (entry["failurePolicy"], entry["timeoutSeconds"], entry["sideEffects"]) == ("Ignore", 5, "None")
        assert entry["matchPolicy"] == "Exact"
        assert [rule["operations"] for rule in entry["rules"]] == [["CREATE", "UPDATE"]]
