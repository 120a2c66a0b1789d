"""A real kubectl against the embedded API: everyday commands work, and none of them warns."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from testbed.certificate import Authority
from tests.local.apiserver.client import MERGE, Client
from tests.local.apiserver.conftest import TOKEN
from tests.local.kubectl import SECONDS, Kubectl, table
from trainmaster.kinds import crd
from trainmaster.local.apiserver.http.server import ApiOptions, serve_api

Object = dict[str, Any]

FARMS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "farms.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "farms", "kind": "Farm", "singular": "farm", "listKind": "FarmList", "shortNames": ["fa"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "additionalPrinterColumns": [{"name": "Wanted", "type": "integer", "jsonPath": ".spec.replicas"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "description": "What is grown.",
                                "properties": {"replicas": {"type": "integer", "minimum": 0}},
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: a}}
spec:
  containers:
  - {name: c, image: "busybox:1", command: [sleep, "1"], env: [{name: A, value: b}], ports: [{containerPort: 80}]}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {selector: {app: a}, ports: [{name: web, port: 80}]}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {a: b, c: d}
"""
FARM = """
apiVersion: example.com/v1
kind: Farm
metadata: {name: f}
spec: {replicas: 2}
"""
JOB = """
apiVersion: diengine.opendilab.org/v1alpha1
kind: DIJob
metadata: {name: a}
spec:
  coordinator: {template: {spec: {containers: [{name: di-container, image: i}]}}}
"""
ALL = "---".join((POD, SERVICE, CONFIG, FARM))


@pytest.fixture
async def served(api_options: ApiOptions, authority: Authority, tmp_path: Path) -> AsyncIterator[tuple[Client, Path]]:
    """The embedded API with our kinds and a farm, and a kubeconfig for it."""
    options = msgspec.structs.replace(api_options, definitions=[*crd.all_crds(), FARMS])
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        ca = base64.b64encode(authority.ca_pem).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "x", "cluster": {"server": server.url, "certificate-authority-data": ca}}],
            "users": [{"name": "x", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "current-context": "x",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        yield client, file


@pytest.fixture
def kubectl(binaries: Path, served: tuple[Client, Path], tmp_path: Path) -> Kubectl:
    return Kubectl(binaries / "kubectl", served[1], tmp_path)


@pytest.fixture
def local(served: tuple[Client, Path]) -> Client:
    return served[0]


# --- create, get, delete ---


async def test_create_get_delete(kubectl: Kubectl) -> None:
    assert (await kubectl("create", "-f", "-", input=ALL)).splitlines() == [
        "pod/p created",
        "service/s created",
        "configmap/m created",
        "farm.example.com/f created",
    ]
    assert table(await kubectl("get", "pods"))[1][:4] == ["p", "0/1", "Pending", "0"]
    assert table(await kubectl("get", "farms")) == [["NAME", "WANTED"], ["f", "2"]]
    assert table(await kubectl("get", "fa", "f", "--no-headers")) == [["f", "2"]]

    deleted = await kubectl("delete", "-f", "-", f"--timeout={SECONDS}s", input=ALL)

    assert len(deleted.splitlines()) == 4
    left = await kubectl.run("get", "pods,services,configmaps,farms")
    assert (left.code, left.out) == (0, "")


async def test_get_in_every_form(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", input=ALL)

    assert json.loads(await kubectl("get", "pod", "p", "-o", "json"))["spec"]["containers"][0]["name"] == "c"
    assert yaml.safe_load(await kubectl("get", "farm", "f", "-o", "yaml"))["kind"] == "Farm"
    assert table(await kubectl("get", "pods", "-o", "wide"))[0][-4:] == ["NOMINATED", "NODE", "READINESS", "GATES"]
    assert table(await kubectl("get", "pods", "-A"))[1][:2] == ["default", "p"]
    assert (await kubectl("get", "pods", "-o", "name")).split() == ["pod/p"]
    assert await kubectl("get", "farm", "f", "-o", "jsonpath={.spec.replicas}") == "2"
    assert table(await kubectl("get", "pods", "-o", "custom-columns=N:.metadata.name")) == [["N"], ["p"]]
    assert table(await kubectl("get", "pods", "--show-labels"))[1][-1] == "app=a"
    assert len((await kubectl("get", "pods", "--sort-by=.metadata.name")).splitlines()) == 2
    assert "pod/p" in await kubectl("get", "all")


async def test_get_all_lists_jobs(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", input=JOB)

    assert table(await kubectl("get", "all"))[1][0] == "dijob.diengine.opendilab.org/a"


async def test_get_by_labels_and_fields(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", input=POD)

    assert (await kubectl("get", "pods", "-l", "app=a", "-o", "name")).split() == ["pod/p"]
    assert (await kubectl("get", "pods", "-l", "app in (b, c)", "-o", "name")).split() == []
    assert (await kubectl("get", "pods", "--field-selector=status.phase=Pending", "-o", "name")).split() == ["pod/p"]
    assert (await kubectl("get", "pods", "--field-selector=metadata.name!=p", "-o", "name")).split() == []


async def test_missing_objects_are_reported(kubectl: Kubectl) -> None:
    done = await kubectl.run("get", "pod", "nope")

    assert (done.code, done.err) == (1, 'Error from server (NotFound): pods "nope" not found\n')


async def test_get_watches(kubectl: Kubectl, local: Client) -> None:
    await kubectl("create", "-f", "-", input=POD)
    async with kubectl.background("get", "pods", "-w", "--no-headers") as process, asyncio.timeout(SECONDS):
        assert process.stdout
        assert (await process.stdout.readline()).split()[:3] == [b"p", b"0/1", b"Pending"]
        await local.merge("/api/v1/namespaces/default/pods/p/status", {"status": {"phase": "Running"}})
        assert (await process.stdout.readline()).split()[:3] == [b"p", b"0/1", b"Running"]


@pytest.mark.parametrize(
    ("arguments", "created"),
    [
        (("namespace", "x"), "namespace/x created\n"),
        (("configmap", "x", "--from-literal=a=b"), "configmap/x created\n"),
        (("secret", "generic", "x", "--from-literal=a=b"), "secret/x created\n"),
        (("serviceaccount", "x"), "serviceaccount/x created\n"),
        (("service", "clusterip", "x", "--tcp=80:8080"), "service/x created\n"),
    ],
)
async def test_create_without_a_file(arguments: tuple[str, ...], created: str, kubectl: Kubectl) -> None:
    assert await kubectl("create", *arguments) == created


async def test_the_data_of_a_secret_is_stored(kubectl: Kubectl) -> None:
    await kubectl("create", "secret", "generic", "x", "--from-literal=a=ü", "--type=a.b/c")

    stored = json.loads(await kubectl("get", "secret", "x", "-o", "json"))

    assert base64.b64decode(stored["data"]["a"]).decode() == "ü"
    assert stored["type"] == "a.b/c"


async def test_a_namespace_is_deleted_with_its_content(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "other")
    await kubectl("create", "-n", "other", "-f", "-", input=ALL)

    await kubectl("delete", "namespace", "other", f"--timeout={SECONDS}s")

    assert "other" not in await kubectl("get", "namespaces", "-o", "name")


# --- apply ---


async def test_apply_creates_then_changes_then_leaves_alone(kubectl: Kubectl) -> None:
    changed = ALL.replace("busybox:1", "busybox:2").replace("port: 80}]}", "port: 81}]}")
    changed = changed.replace("c: d}", "e: f}").replace("replicas: 2", "replicas: 3")

    assert (await kubectl("apply", "-f", "-", input=ALL)).count(" created") == 4
    assert (await kubectl("apply", "-f", "-", input=ALL)).count(" unchanged") == 4
    assert (await kubectl("apply", "-f", "-", input=changed)).count(" configured") == 4

    assert await kubectl("get", "pod", "p", "-o", "jsonpath={.spec.containers[*].image}") == "busybox:2"
    assert await kubectl("get", "svc", "s", "-o", "jsonpath={.spec.ports[*].port}") == "81"
    assert json.loads(await kubectl("get", "cm", "m", "-o", "jsonpath={.data}")) == {"a": "b", "e": "f"}
    assert await kubectl("get", "farm", "f", "-o", "jsonpath={.spec.replicas}") == "3"


async def test_server_side_apply_creates_and_changes(kubectl: Kubectl) -> None:
    made = await kubectl.run("apply", "--server-side", "-f", "-", input=ALL)
    changed = await kubectl.run("apply", "--server-side", "-f", "-", input=ALL.replace("replicas: 2", "replicas: 3"))

    assert (made.code, made.err, made.out.count("serverside-applied")) == (0, "", 4)
    assert (changed.code, changed.out.count("serverside-applied")) == (0, 4)
    assert "Warning: the local cluster keeps no owners of fields" in changed.err
    assert await kubectl("get", "farm", "f", "-o", "jsonpath={.spec.replicas}") == "3"


async def test_a_deployment_is_refused_with_what_runs_here(kubectl: Kubectl) -> None:
    done = await kubectl.run("create", "deployment", "d", "--image=busybox")

    assert done.code == 1
    assert "the local cluster does not run deployments.apps: it runs pods (kubectl run)" in done.err


async def test_diff_shows_what_apply_would_change(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", input=FARM)

    same = await kubectl.run("diff", "-f", "-", input=FARM)
    other = await kubectl.run("diff", "-f", "-", input=FARM.replace("2", "3"))

    assert (same.code, same.out, same.err) == (0, "", "")
    assert other.code == 1
    assert "+  replicas: 3" in other.out


async def test_a_typo_is_refused_by_the_server(kubectl: Kubectl) -> None:
    done = await kubectl.run("create", "-f", "-", input=FARM.replace("replicas", "replcas"))

    assert done.code == 1
    assert 'unknown field "spec.replcas"' in done.err


async def test_a_bad_value_is_refused_with_its_place(kubectl: Kubectl) -> None:
    done = await kubectl.run("apply", "-f", "-", input=FARM.replace("2", "-2"))

    assert done.code == 1
    assert "spec.replicas: Invalid value: -2" in done.err


async def test_a_dry_run_stores_nothing(kubectl: Kubectl) -> None:
    assert "created (server dry run)" in await kubectl("create", "--dry-run=server", "-f", "-", input=FARM)
    assert (await kubectl.run("get", "farm", "f")).code == 1


# --- change ---


async def test_label_annotate_patch_and_scale(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", input=ALL)

    assert await kubectl("label", "pod", "p", "x=y") == "pod/p labeled\n"
    assert await kubectl("annotate", "farm", "f", "x=y") == "farm.example.com/f annotated\n"
    ports = '{"spec":{"ports":[{"port":80,"name":"w"}]}}'
    assert await kubectl("patch", "svc", "s", "-p", ports) == "service/s patched\n"
    assert await kubectl("scale", "farm/f", "--replicas=7") == "farm.example.com/f scaled\n"

    assert await kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.labels.x}") == "y"
    assert await kubectl("get", "farm", "f", "-o", "jsonpath={.spec.replicas} {.metadata.annotations.x}") == "7 y"
    assert await kubectl("label", "pod", "p", "x-") == "pod/p unlabeled\n"


async def test_edit(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", input=FARM)

    edited = await kubectl("edit", "farm", "f", editor="sed -i -e s/replicas:.2/replicas:\\ 5/")

    assert edited == "farm.example.com/f edited\n"
    assert await kubectl("get", "farm", "f", "-o", "jsonpath={.spec.replicas}") == "5"


async def test_replace_set_run_and_expose(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", input=ALL)

    assert await kubectl("replace", "-f", "-", input=FARM.replace("2", "4")) == "farm.example.com/f replaced\n"
    assert await kubectl("set", "image", "pod/p", "c=busybox:3") == "pod/p image updated\n"
    assert await kubectl("run", "q", "--image=busybox") == "pod/q created\n"
    assert await kubectl("expose", "pod", "q", "--port=80") == "service/q exposed\n"


async def test_the_life_of_a_job(kubectl: Kubectl) -> None:
    assert " created" in await kubectl("apply", "-f", "-", input=JOB)
    assert " configured" in await kubectl("apply", "-f", "-", input=JOB.replace("image: i", "image: j"))
    assert await kubectl("get", "dijob", "a", "-o", "jsonpath={.metadata.generation}") == "2"
    status = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl("patch", "dijob", "a", "--subresource=status", "--type=merge", "-p", status)

    assert table(await kubectl("get", "dijobs"))[1][:2] == ["a", "Running"]
    assert "condition met" in await kubectl("wait", "dijob/a", "--for=condition=Ready", f"--timeout={SECONDS}s")
    await kubectl("delete", "dijob", "a")
    assert await kubectl("get", "dijobs", "-o", "name") == ""


async def test_get_shows_a_job_with_a_coordinator_in_the_columns_of_v2alpha1(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", input=JOB)
    status = '{"phase":"Running","readyReplicas":1,"replicas":2,"restarts":{},"summary":{"restarts":3}}'
    await kubectl("patch", "dijob", "a", "--subresource=status", "--type=merge", "-p", f'{{"status":{status}}}')

    titles, row = table(await kubectl("get", "dijob"))

    assert titles == ["NAME", "PHASE", "READYREPLICAS", "REPLICAS", "RESTARTS", "RESCHEDULES", "AGE"]
    assert row[:5] == ["a", "Running", "1", "2", "3"]


# --- describe, events, wait ---


async def test_describe(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", input=ALL)

    for name in ("pod/p", "service/s", "configmap/m", "farm/f", "namespace/default", "crd/farms.example.com"):
        assert "Name:" in await kubectl("describe", name)


async def test_events_of_an_object_are_found(kubectl: Kubectl, local: Client) -> None:
    await kubectl("create", "-f", "-", input=POD)
    uid = await kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    about = {"kind": "Pod", "name": "p", "namespace": "default", "uid": uid, "apiVersion": "v1"}
    event = {"involvedObject": about, "reason": "Odd", "message": "so it is", "type": "Warning"}
    await local.create("/api/v1/namespaces/default/events", {"metadata": {"name": "e"}, **event})

    assert "so it is" in await kubectl("events", "--for", "pod/p")
    assert "so it is" in await kubectl("get", "events")
    assert "so it is" in await kubectl("describe", "pod", "p")


@pytest.mark.parametrize(
    ("arguments", "method", "path", "change"),
    [
        pytest.param(
            ("--for=condition=Ready", "pod/p"),
            "PATCH",
            "/api/v1/namespaces/default/pods/p/status",
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            id="condition",
        ),
        pytest.param(
            ("--for=jsonpath={.spec.replicas}=9", "farm/f"),
            "PATCH",
            "/apis/example.com/v1/namespaces/default/farms/f",
            {"spec": {"replicas": 9}},
            id="value",
        ),
        pytest.param(
            ("--for=delete", "farm/f"), "DELETE", "/apis/example.com/v1/namespaces/default/farms/f", None, id="end"
        ),
    ],
)
async def test_wait(
    arguments: tuple[str, ...], method: str, path: str, change: Object | None, kubectl: Kubectl, local: Client
) -> None:
    await kubectl("create", "-f", "-", input=POD + "---" + FARM)

    async with kubectl.background("wait", *arguments, f"--timeout={SECONDS}s") as process:
        answer = await local.request(method, path, change, content_type=MERGE)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0

    assert answer.code == 200


# --- about the server ---


async def test_discovery_lists_all_resources(kubectl: Kubectl) -> None:
    resources = {line[0] for line in table(await kubectl("api-resources"))}
    versions = (await kubectl("api-versions")).split()

    assert {"pods", "services", "nodes", "leases", "dijobs", "aitrainingjobs", "farms"} <= resources
    assert {"v1", "coordination.k8s.io/v1", "example.com/v1"} <= set(versions)
    assert "Server Version: v1.36" in await kubectl("version")


async def test_explain(kubectl: Kubectl) -> None:
    assert "What is grown." in await kubectl("explain", "farm.spec")
    assert "imagePullPolicy" in await kubectl("explain", "pod.spec.containers")
    assert "uid" in await kubectl("explain", "farm.metadata")


# --- the one user ---


async def test_the_one_user_may_do_everything(kubectl: Kubectl) -> None:
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert await kubectl("auth", "can-i", "get", "--subresource=log", "pods") == "yes\n"
    assert await kubectl("auth", "can-i", "get", "/healthz") == "yes\n"
    assert table(await kubectl("auth", "can-i", "--list"))[1] == ["*.*", "[]", "[]", "[*]"]


async def test_whoami_shows_the_one_user(kubectl: Kubectl) -> None:
    shown = json.loads(await kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]

    assert shown == {"username": "trainmaster", "groups": ["system:masters", "system:authenticated"]}


async def test_there_is_no_other_user(kubectl: Kubectl) -> None:
    done = await kubectl.run("auth", "can-i", "create", "pods", "--as=joe")

    assert done.code == 1
    assert "impersonation (kubectl --as) is not supported by the local cluster" in done.err


async def test_a_token_is_recognized(local: Client) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"

    right = await local.create(path, {"spec": {"token": TOKEN}})
    other = await local.create(path, {"spec": {"token": TOKEN, "audiences": ["another server"]}})

    assert (right["status"]["authenticated"], right["status"]["user"]["username"]) == (True, "trainmaster")
    assert "authenticated" not in other["status"]
