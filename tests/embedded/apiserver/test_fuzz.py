"""A thousand malformed requests: none gets a 500, none leaves a task or a watch behind."""

import asyncio
import copy
import json
import random
import string
from typing import Any

from tests.embedded.apiserver.client import MERGE, OPERATIONS, STRATEGIC, Client

NAMESPACE = "/api/v1/namespaces/default"
TEMPLATE = {"spec": {"containers": [{"name": "di-container", "image": "i"}]}}
BODIES: dict[str, dict[str, Any]] = {
    f"{NAMESPACE}/configmaps": {"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"x": "y"}},
    f"{NAMESPACE}/pods": {
        "metadata": {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"memory": "1Gi"}},
                    "readinessProbe": {"tcpSocket": {"port": 80}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    },
    f"{NAMESPACE}/services": {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}},
    f"{NAMESPACE}/secrets": {
        "metadata": {"name": "a"},
        "type": "Opaque",
        "data": {"x": "eQ=="},
        "stringData": {"y": "z"},
    },
    f"{NAMESPACE}/events": {
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"},
        "reason": "R",
        "count": 1,
        "firstTimestamp": "2020-01-01T00:00:00Z",
    },
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {
        "metadata": {"name": "a"},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"},
    },
    "/api/v1/nodes": {
        "metadata": {"name": "a"},
        "spec": {"unschedulable": False, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "/api/v1/namespaces": {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}},
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
                    },
                    "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n"}],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}}
                            },
                        }
                    },
                }
            ],
        },
    },
    "/apis/diengine.opendilab.org/v1alpha1/namespaces/default/dijobs": {
        "apiVersion": "diengine.opendilab.org/v1alpha1",
        "kind": "DIJob",
        "metadata": {"name": "a"},
        "spec": {"coordinator": {"template": TEMPLATE}},
        "status": {"phase": "Running"},
    },
    "/apis/example.com/v1/namespaces/default/things": {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "a"},
        "spec": {"n": 1},
    },
}
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\x00",
    "é" * 300,
    [],
    [None],
    [[]],
    {},
    {"": None},
    {"x": {}},
    "1Gi",
)
TYPES = ("application/json", MERGE, OPERATIONS, STRATEGIC, "application/apply-patch+yaml", "text/plain", "", "a/b; c=d")
ACCEPTS = (
    "",
    "*/*",
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "text/plain",
    ";;;,,",
    "a" * 500,
)
QUERIES: tuple[str, ...] = (
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "watch",
)
QUERIES += ("timeoutSeconds", "gracePeriodSeconds", "propagationPolicy", "dryRun", "fieldValidation", "includeObject")
PATHS = (
    "/",
    "//",
    "/api",
    "/api/",
    "/apis//",
    "/api/v1//",
    "/api/v1/namespaces//pods",
    "/%00",
    "/api/v1/pods/%2e%2e/x",
    "/a" * 500,
)
SUBRESOURCES = ("status", "log", "binding", "scale", "finalize", "exec", "odd", "status/deep")


def mutated(choose: random.Random, body: Any) -> Any:
    """The body with one odd thing somewhere in it."""
    body = copy.deepcopy(body)
    at = body
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return body
        key = choose.choice(keys)
        below = at[key]
        if isinstance(below, dict | list) and below and choose.random() < 0.75:
            at = below
            continue
        at[key] = choose.choice(ODD)
        return body


def any_path(choose: random.Random, collection: str) -> str:
    path = collection
    if choose.random() < 0.6:
        path += "/a"
        if choose.random() < 0.3:
            path += f"/{choose.choice(SUBRESOURCES)}"
    if choose.random() < 0.05:
        path = choose.choice(PATHS)
    if choose.random() < 0.3:
        name, value = (
            choose.choice(QUERIES),
            choose.choice(("", "x", "-1", "0", "true", "a=b,c!=d", "(,)", "9" * 30, "!", "%00")),
        )
        path += f"?{name}={value}&timeoutSeconds=1" if name == "watch" else f"?{name}={value}"
    return path


def any_body(choose: random.Random, body: Any) -> bytes | None:
    kind = choose.random()
    if kind < 0.6:
        return json.dumps(mutated(choose, body)).encode()
    if kind < 0.7:
        operation = {
            "op": choose.choice(("add", "remove", "test", "move")),
            "path": choose.choice(("/metadata", "/spec/x", "")),
        }
        return json.dumps([{**operation, "from": "/spec", "value": choose.choice(ODD)}]).encode()
    if kind < 0.8:
        return json.dumps(choose.choice(ODD)).encode()
    if kind < 0.85:
        return b"[" * 5000
    if kind < 0.9:
        return bytes(choose.randrange(256) for _ in range(50))
    return None if kind < 0.95 else json.dumps(body).encode()[: choose.randrange(40)]


async def test_malformed_requests_never_get_a_500(api: Client) -> None:
    for path, body in BODIES.items():
        assert (await api.request("POST", path, body)).code == 201, path
    tasks = len(asyncio.all_tasks())
    choose = random.Random(4)
    for index in range(1000):
        collection, body = choose.choice(list(BODIES.items()))
        method = choose.choice(("GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"))
        path = any_path(choose, collection)
        sent = any_body(choose, body)
        answer = await api.request(method, path, sent, content_type=choose.choice(TYPES), accept=choose.choice(ACCEPTS))
        assert answer.code != 500, (index, method, path, sent, answer.body)
    huge = await api.request("POST", f"{NAMESPACE}/configmaps", b'{"x":"' + b"x" * (4 << 20) + b'"}')
    assert (huge.code, huge.body["reason"]) == (413, "RequestEntityTooLarge")
    assert len(asyncio.all_tasks()) <= tasks
    assert (await api.request("GET", "/healthz")).body == "ok"


async def test_what_malformed_requests_left_can_still_be_listed(api: Client) -> None:
    choose = random.Random(5)
    for _ in range(300):
        collection, body = choose.choice(list(BODIES.items()))
        body = {**mutated(choose, body)}
        if isinstance(body.get("metadata"), dict):
            body["metadata"]["name"] = "".join(choose.choices(string.ascii_lowercase, k=4))
        await api.request("POST", collection, body)
    for collection in BODIES:
        for accept in ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"):
            answer = await api.request("GET", collection, accept=accept)
            assert answer.code in (200, 404), (collection, answer)
