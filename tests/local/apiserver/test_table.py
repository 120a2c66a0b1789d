"""Tables: kubectl shows the same columns and cells as with a real kube-apiserver."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from testbed.plane import ControlPlane
from tests.build import NOW
from tests.local.apiserver.client import Client
from trainmaster.core.ids import Resource
from trainmaster.kinds import crd
from trainmaster.local.apiserver.kubectl.table import as_table, human
from trainmaster.local.apiserver.objects.catalog import BUILT_IN, served_of
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.schema import json_path

Object = dict[str, Any]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
SERVED = {str(served.resource): served for served in BUILT_IN}


def columns(table: Object) -> list[tuple[str, str, str, int]]:
    """Descriptions are kubectl's business: it does not show them."""
    return [(each["name"], each["type"], each["format"], each["priority"]) for each in table["columnDefinitions"]]


def cells_of(served: Served, *objects: Object, now: datetime = NOW) -> list[Any]:
    table = as_table(served, objects, is_list=True, include_object="None", metadata={}, now=now)
    return [row["cells"] for row in table["rows"]]


async def the_same(served: Served, path: str, real: Client) -> None:
    """Fails unless our table of the objects at a path is the real one's at some moment of its answering."""
    asked = datetime.now(UTC)
    theirs = (await real.request("GET", path, accept=TABLE)).body
    took = datetime.now(UTC) - asked
    objects = (await real.get(path))["items"]
    assert objects

    found = []
    for second in range(math.ceil(took.total_seconds()) + 1):
        now = min(asked + timedelta(seconds=second), asked + took)
        mine = as_table(served, objects, is_list=True, include_object="Metadata", metadata=theirs["metadata"], now=now)
        assert columns(mine) == columns(theirs)
        found.append([(row["cells"], row.get("conditions")) for row in mine["rows"]])

    assert [(row["cells"], row.get("conditions")) for row in theirs["rows"]] in found


def state(word: str, **fields: Any) -> Object:
    return {word: fields}


def container(state_: Object, *, name: str = "c", restarts: int = 0, **fields: Any) -> Object:
    return {
        "name": name,
        "image": "",
        "imageID": "",
        "ready": "running" in state_,
        "restartCount": restarts,
        "state": state_,
        "lastState": {},
        **fields,
    }


RUNNING = state("running", startedAt="2026-11-15T12:00:00Z")
DONE = state("terminated", exitCode=0, reason="Completed")
READY = [{"type": "Ready", "status": "True"}]


def phase(word: str, *containers: Object, **fields: Any) -> Object:
    return {"phase": word, "containerStatuses": list(containers), **fields}


STATUSES: dict[str, tuple[Object, str]] = {
    "pending": ({"phase": "Pending"}, "Pending"),
    "running": (phase("Running", container(RUNNING), conditions=READY), "Running"),
    "creating": (phase("Pending", container(state("waiting", reason="ContainerCreating"))), "ContainerCreating"),
    "completed": (phase("Succeeded", container(DONE)), "Completed"),
    "error": (phase("Failed", container(state("terminated", exitCode=1, reason="Error"))), "Error"),
    "oom": (phase("Failed", container(state("terminated", exitCode=137, reason="OOMKilled"))), "OOMKilled"),
    "exit-code": (phase("Failed", container(state("terminated", exitCode=3))), "ExitCode:3"),
    "signal": (phase("Failed", container(state("terminated", exitCode=137, signal=9))), "Signal:9"),
    "crash-loop": (
        phase("Running", container(state("waiting", reason="CrashLoopBackOff"), restarts=4)),
        "CrashLoopBackOff",
    ),
    "evicted": ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}, "Evicted"),
    "initializing": (
        phase("Pending", initContainerStatuses=[container(RUNNING, name="i")]),
        "Init:0/1",
    ),
    "init-waits": (
        phase("Pending", initContainerStatuses=[container(state("waiting", reason="ImagePullBackOff"), name="i")]),
        "Init:ImagePullBackOff",
    ),
    "init-is-about-to-start": (
        phase("Pending", initContainerStatuses=[container(state("waiting", reason="PodInitializing"), name="i")]),
        "Init:0/1",
    ),
    "init-failed": (
        phase("Failed", initContainerStatuses=[container(state("terminated", exitCode=1, reason="Error"), name="i")]),
        "Init:Error",
    ),
    "init-exit-code": (
        phase("Failed", initContainerStatuses=[container(state("terminated", exitCode=2), name="i")]),
        "Init:ExitCode:2",
    ),
    "init-is-done": (
        phase("Running", container(RUNNING), initContainerStatuses=[container(DONE, name="i", restarts=2)]),
        "Running",
    ),
    "one-of-two-is-done": (
        phase("Running", container(DONE), container(RUNNING, name="d"), conditions=READY),
        "Running",
    ),
    "one-of-two-is-done-and-the-other-not-ready": (
        phase("Running", container(DONE), container(RUNNING, name="d")),
        "NotReady",
    ),
    "one-of-two-failed": (
        phase("Failed", container(DONE), container(state("terminated", exitCode=1, reason="Error"), name="d")),
        "Error",
    ),
    "gated": (
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
        "SchedulingGated",
    ),
    "with-an-address": (
        phase("Running", container(RUNNING), podIP="10.0.0.1", podIPs=[{"ip": "10.0.0.1"}], nominatedNodeName="n"),
        "Running",
    ),
}


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in STATUSES.items()])
async def test_a_pod_looks_as_with_a_real_api_server(row: tuple[Object, str], real: Client, namespace: str) -> None:
    status, word = row
    path = f"/api/v1/namespaces/{namespace}/pods"
    spec = {
        "containers": [{"name": name, "image": "i"} for name in ("c", "d")],
        "initContainers": [{"name": "i", "image": "i"}],
        "readinessGates": [{"conditionType": "Ready"}],
    }
    await real.create(path, {"metadata": {"name": "x"}, "spec": spec})
    stored = await real.merge(f"{path}/x/status", {"status": status})

    await the_same(SERVED["pods"], path, real)
    assert cells_of(SERVED["pods"], stored)[0][2] == word


async def test_a_pod_that_is_being_deleted_is_terminating_until_it_has_ended(real: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for name in ("a", "b"):
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}
        await real.create(path, {"metadata": {"name": name, "finalizers": ["a.b/c"]}, "spec": spec})
        await real.merge(f"{path}/{name}/status", {"status": {"phase": {"a": "Running", "b": "Succeeded"}[name]}})
        await real.delete(f"{path}/{name}")

    await the_same(SERVED["pods"], path, real)


def test_restarts_show_the_age_of_the_last_one() -> None:
    ended = (NOW - timedelta(minutes=5)).isoformat()
    last = container(RUNNING, restarts=3, lastState={"terminated": {"exitCode": 1, "finishedAt": ended}})
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}, "status": phase("Running", last)}

    assert cells_of(SERVED["pods"], pod)[0][3] == "3 (5m ago)"


def test_a_sidecar_counts_as_a_container() -> None:
    pod = {
        "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]},
        "status": phase(
            "Running",
            container(RUNNING),
            initContainerStatuses=[container(RUNNING, name="s", started=True, restarts=1)],
        ),
    }

    assert cells_of(SERVED["pods"], pod)[0][1:4] == ["2/2", "Running", "1"]


async def test_services_look_as_with_a_real_api_server(real: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    port = {"port": 80}
    specs: dict[str, Object] = {
        "a": {"ports": [port]},
        "b": {"ports": [port, {"port": 81, "name": "b", "protocol": "UDP"}], "selector": {"z": "1", "a": "2"}},
        "c": {"clusterIP": "None"},
        "d": {"type": "NodePort", "ports": [port], "externalIPs": ["1.2.3.4"]},
        "e": {"type": "LoadBalancer", "ports": [port]},
        "f": {"type": "ExternalName", "externalName": "a.b"},
    }
    for name, spec in specs.items():
        ports = [{"name": "a", **each} for each in spec.get("ports", [])]
        await real.create(path, {"metadata": {"name": name}, "spec": {**spec, "ports": ports}})
    balanced = {"loadBalancer": {"ingress": [{"ip": "1.2.3.5"}]}}
    await real.create(path, {"metadata": {"name": "g"}, "spec": {"type": "LoadBalancer", "ports": [port]}})
    await real.merge(f"{path}/g/status", {"status": balanced})

    await the_same(SERVED["services"], path, real)


async def test_nodes_look_as_with_a_real_api_server(real: Client) -> None:
    nodes: dict[str, Object] = {
        "table-a": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        "table-b": {
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            "spec": {"unschedulable": True},
        },
        "table-c": {
            "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "master"},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "1.2.3.4"},
                    {"type": "ExternalIP", "address": "1.2.3.5"},
                ],
                "nodeInfo": {
                    "kubeletVersion": "v1",
                    "osImage": "Linux",
                    "kernelVersion": "6",
                    "architecture": "amd64",
                    "containerRuntimeVersion": "r://1",
                },
            },
        },
    }
    for name, body in nodes.items():
        metadata = {"name": name, "labels": {"of": "tables", **body.get("labels", {})}}
        stored = await real.create("/api/v1/nodes", {"metadata": metadata, "spec": body.get("spec", {})})
        info = {**stored["status"]["nodeInfo"], **body["status"].get("nodeInfo", {})}
        await real.merge(f"/api/v1/nodes/{name}/status", {"status": {**body["status"], "nodeInfo": info}})

    await the_same(SERVED["nodes"], "/api/v1/nodes?labelSelector=of%3Dtables", real)  # other tests have nodes too


async def test_events_look_as_with_a_real_api_server(real: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    about = {"kind": "Pod", "name": "p", "namespace": namespace, "fieldPath": "spec.containers{c}"}
    events: dict[str, Object] = {
        "a": {
            "reason": "R",
            "message": " m \n",
            "type": "Normal",
            "count": 3,
            "source": {"component": "c", "host": "h"},
        },
        "b": {"reportingComponent": "r", "reportingInstance": "i"},
        "c": {"involvedObject": {**about, "name": ""}},
    }
    for name, fields in events.items():
        await real.create(path, {"metadata": {"name": name}, "involvedObject": about, **fields})

    await the_same(SERVED["events"], path, real)


def test_an_event_shows_when_it_was_last_seen() -> None:
    def seen(**fields: Any) -> list[Any]:
        cells = cells_of(SERVED["events"], {"metadata": {"name": "e"}, **fields})[0]
        return [cells[0], cells[7], cells[8]]

    ago = [(NOW - timedelta(minutes=minutes)).isoformat() for minutes in range(10)]

    assert seen(firstTimestamp=ago[5], lastTimestamp=ago[3], count=2) == ["3m", "5m", 2]
    assert seen(eventTime=ago[4]) == ["4m", "4m", 1]
    assert seen(eventTime=ago[4], series={"count": 7, "lastObservedTime": ago[2]}) == ["2m", "4m", 7]


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        pytest.param("configmaps", {"data": {"a": "b"}, "binaryData": {"c": "eA=="}}, id="config-map"),
        pytest.param("secrets", {"stringData": {"a": "b"}}, id="secret"),
        pytest.param("serviceaccounts", {}, id="service-account"),
        pytest.param("leases.coordination.k8s.io", {"spec": {"holderIdentity": "me"}}, id="lease"),
        pytest.param("leases.coordination.k8s.io", {}, id="lease-of-nobody"),
    ],
)
async def test_small_kinds_look_as_with_a_real_api_server(
    resource: str, body: Object, real: Client, namespace: str
) -> None:
    served = SERVED[resource]
    prefix = f"apis/{served.resource.group}" if served.resource.group else "api"
    path = f"/{prefix}/v1/namespaces/{namespace}/{served.resource.plural}"
    await real.create(path, {"metadata": {"name": "x"}, **body})

    await the_same(served, path, real)


async def test_definitions_look_as_with_a_real_api_server(real: Client) -> None:
    served = SERVED["customresourcedefinitions.apiextensions.k8s.io"]

    await the_same(served, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", real)


# --- custom resources ---

GROUP = "table.example.com"
COLUMNS = [
    {"name": "Text", "type": "string", "jsonPath": ".spec.text"},
    {"name": "Any", "type": "string", "jsonPath": ".spec.any", "description": "whatever it is"},
    {"name": "Count", "type": "integer", "jsonPath": ".spec.count"},
    {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
    {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
    {"name": "When", "type": "date", "jsonPath": ".spec.when"},
    {"name": "Last", "type": "string", "jsonPath": ".spec.list[-1:].name", "priority": 1},
    {"name": "First", "type": "string", "jsonPath": ".spec.list[0].name"},
    {"name": "Chosen", "type": "string", "jsonPath": '.spec.list[?(@.name=="b")].value'},
    {"name": "Dotted", "type": "string", "jsonPath": ".metadata.labels['a\\.b/c']"},
    {"name": "All", "type": "string", "jsonPath": ".spec.list[*].name"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
ROWS: dict[str, Object] = {
    "empty": {},
    "full": {
        "text": "a",
        "any": {"b": [1, "c", None], "a": True},
        "count": 3,
        "ratio": 1.5,
        "flag": False,
        "when": "2020-01-01T00:00:00Z",
        "list": [{"name": "a", "value": 1}, {"name": "b", "value": 2.5}],
    },
    "wrong": {"text": 1, "any": 1.25, "count": "x", "ratio": "x", "flag": "x", "when": "x", "list": {}},
    "odd": {"text": True, "any": [], "count": 2.7, "ratio": 3, "when": 5, "list": []},
}


async def test_printer_columns_look_as_with_a_real_api_server(
    real_plane: ControlPlane, real: Client, namespace: str
) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "additionalPrinterColumns": COLUMNS}
    names = {"plural": "rows", "kind": "Row", "singular": "row", "listKind": "RowList"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"rows.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    real_plane.apply(json.dumps(definition))
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/rows"
    for name, spec in ROWS.items():
        labels = {"a.b/c": "d"} if name == "full" else {}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Row", "metadata": {"name": name, "labels": labels}, "spec": spec}
        await real.create(path, body)

    await the_same(next(iter(served_of(definition))), path, real)


def test_a_resource_without_printer_columns_has_an_age() -> None:
    served = Served(Resource("a.b", "v1", "cs", "C"), "c", definition={})
    obj = {"metadata": {"name": "x", "creationTimestamp": (NOW - timedelta(hours=4)).isoformat()}}

    assert cells_of(served, obj) == [["x", "4h"]]


def test_our_kinds_show_their_phase() -> None:
    served = next(iter(served_of(crd.all_crds()[0])))
    obj = {"metadata": {"name": "x"}, "status": {"phase": "Running"}}

    assert cells_of(served, obj)[0][:2] == ["x", "Running"]


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        pytest.param(
            {"readyReplicas": 1, "replicas": 2, "restarts": 3, "reschedules": 4, "summary": {"restarts": 3}},
            [1, 2, 3, 4],
            id="tasks",
        ),
        pytest.param(
            {"readyReplicas": 1, "replicas": 2, "restarts": {"coordinator": {"count": 3}}, "summary": {"restarts": 3}},
            [1, 2, 3, None],
            id="coordinator",
        ),
    ],
)
def test_both_forms_of_a_dijob_fill_the_columns_that_kubectl_prefers(status: Object, cells: list[int | None]) -> None:
    served = next(each for each in served_of(crd.all_crds()[0]) if each.resource.version == "v2alpha1")
    obj = {"metadata": {"name": "x"}, "status": {"phase": "Running", **status}}

    assert cells_of(served, obj)[0][2:6] == cells


# --- the rest ---


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400, "2y"),
        (2 * 365 * 86400 + 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_an_age_has_two_words_at_most(seconds: int, text: str) -> None:
    assert human(seconds) == text


@pytest.mark.parametrize(
    ("include", "keys"),
    [
        ("None", None),
        ("Metadata", {"kind", "apiVersion", "metadata"}),
        ("", {"kind", "apiVersion", "metadata"}),
        ("Object", {"metadata", "data"}),
    ],
)
def test_a_row_carries_as_much_of_its_object_as_asked_for(include: str, keys: set[str] | None) -> None:
    obj = {"metadata": {"name": "x"}, "data": {}}

    table = as_table(SERVED["configmaps"], [obj], is_list=True, include_object=include, metadata={}, now=NOW)

    row = table["rows"][0]
    assert (set(row["object"]) if "object" in row else None) == keys


@pytest.mark.parametrize("path", [".a[", "a", ".a[?(@.b)", ".a['b]", ".a[x]"])
def test_a_path_that_is_not_understood_is_refused(path: str) -> None:
    with pytest.raises(json_path.BadPath):
        json_path.find(path, {})
