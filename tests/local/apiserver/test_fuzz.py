"""A thousand malformed requests: none gets a 500, none leaves a task or a watch behind."""

import asyncio
import base64
import copy
import json
import random
import re
import ssl
import string
from typing import Any

import yarl

from tests.local.apiserver.client import MERGE, OPERATIONS, STRATEGIC, Client

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
CONTINUES = (b"[]", b"\xff\xfe", b"{}", b'{"v":"meta.k8s.io/v1","rv":"x","start":5}', b'{"rv":-1,"start":null}')
VALUES: tuple[str, ...] = (
    "",
    "x",
    "-1",
    "0",
    "true",
    "a=b,c!=d",
    "(,)",
    "9" * 30,
    "!",
    "%00",
    "%ff",
    "a%20in%20(b",
    "%",
)
VALUES += tuple(base64.urlsafe_b64encode(token).decode() for token in CONTINUES)
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
        name, value = choose.choice(QUERIES), choose.choice(VALUES)
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
    tasks = len(asyncio.all_tasks())
    choose = random.Random(4)
    for index in range(1000):
        if index % 100 == 0:  # some of the requests delete what others are about
            for path, body in BODIES.items():
                answer = await api.request("POST", path, body)
                assert answer.code == 201 or index, path
                assert answer.code != 500, path
        collection, body = choose.choice(list(BODIES.items()))
        method = choose.choice(("GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"))
        path = any_path(choose, collection)
        sent = any_body(choose, body)
        answer = await api.request(method, path, sent, content_type=choose.choice(TYPES), accept=choose.choice(ACCEPTS))
        assert answer.code != 500, (index, method, path, sent, answer.body)
    huge = await api.request("POST", f"{NAMESPACE}/configmaps", b'{"x":"' + b"x" * (4 << 20) + b'"}')
    assert (huge.code, huge.body["reason"]) == (413, "RequestEntityTooLarge")
    assert (await api.request("GET", "/healthz")).body == "ok"
    await api.session.close()
    await back_to(tasks)


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


# --- what is not even HTTP, and who does not stay for the answer ---

HEAD = b"GET /api/v1/pods HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"
POST = b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"
BROKEN = (
    b"",
    b"\r\n\r\n",
    b"\x00" * 100,
    b"GET\r\n\r\n",
    b"GET /api/v1/pods\r\n\r\n",
    b"GET /api/v1/pods HTTP/9.9\r\n\r\n",
    b"GET http://elsewhere/api/v1/pods HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET \xff\xfe HTTP/1.1\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    HEAD + b"Broken\r\n\r\n",
    HEAD + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
    HEAD + b"X: \x00\r\n\r\n",
    HEAD + b"x: y\r\n" * 5000 + b"\r\n",
    HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    HEAD + b"Expect: 100-continue\r\n\r\n",
    HEAD + b"Expect: nothing\r\n\r\n",
    HEAD + b"Accept-Encoding: odd\r\nRange: bytes=0-1\r\n\r\n",
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: x\r\n\r\n",
    POST + b"Content-Length: 99999999999\r\n\r\n{",
    POST + b"Content-Length: 100\r\n\r\n{",
    POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    POST + b"Transfer-Encoding: odd\r\n\r\n{}",
    POST + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    POST + b"Content-Encoding: odd\r\nContent-Length: 2\r\n\r\n{}",
    POST + b"Content-Type: application/json; charset=odd\r\nContent-Length: 2\r\n\r\n{}",
    POST + b"Content-Type: multipart/form-data\r\nContent-Length: 2\r\n\r\n{}",
)
CODE = re.compile(rb"^HTTP/1\.[01] (\d{3}) ", re.MULTILINE)


def damaged(choose: random.Random, sent: bytes) -> bytes:
    """With one byte missing, changed or too many, or cut."""
    if not sent:
        return sent
    at = choose.randrange(min(len(sent), 200))
    between = choose.choice((b"", bytes([choose.randrange(256)]), sent[at : at + 1] * 2))
    return sent[:at] + between + (sent[at + 1 :] if choose.random() < 0.8 else b"")


async def raw(client: Client, sent: bytes, *, is_encrypted: bool = True, patience: float = 0.03) -> list[int]:
    """The codes that come back before the sender, who says no more, is left alone."""
    port = yarl.URL(client.url).port
    tls = ssl.create_default_context(cafile=str(client.ca_file)) if is_encrypted else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(sent)
    answer = b""
    try:
        async with asyncio.timeout(patience):
            while piece := await reader.read(65536):
                answer += piece
    except (TimeoutError, ConnectionError, ssl.SSLError):
        pass
    writer.transport.abort()
    return [int(code) for code in CODE.findall(answer)]


async def back_to(tasks: int) -> None:
    """Wait until no more tasks are left than these."""
    async with asyncio.timeout(10):
        while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110  no bell rings when a task ends
            await asyncio.sleep(0.01)


async def test_broken_framing_never_gets_a_500_and_leaves_no_task(api: Client) -> None:
    assert (await api.request("GET", "/healthz")).body == "ok"
    tasks = len(asyncio.all_tasks())
    choose = random.Random(4)
    whole = [text.replace(b"%s", api.token.encode()) for text in BROKEN]
    codes: list[int] = []
    for sent in (*whole, *(damaged(choose, choose.choice(whole)) for _ in range(150))):
        found = await raw(api, sent)
        assert not [code for code in found if code == 500], sent[:300]
        codes += found
    for sent in whole:
        assert await raw(api, sent, is_encrypted=False) == []

    assert {200, 400, 401} <= set(codes)
    assert (await api.request("GET", "/healthz")).body == "ok"
    await back_to(tasks)


async def test_clients_that_go_in_the_middle_leave_no_task(api: Client) -> None:
    assert (await api.request("GET", "/healthz")).body == "ok"
    tasks = len(asyncio.all_tasks())
    watch = HEAD.replace(b"/pods", b"/pods?watch=1") + b"\r\n"
    half = POST + b"Content-Length: 1000\r\n\r\n{"
    sent = [text.replace(b"%s", api.token.encode()) for text in (watch, half)] * 30
    answers = await asyncio.gather(*(raw(api, text, patience=2.0) for text in sent))

    assert [200] in answers
    await back_to(tasks)
    assert (await api.request("GET", "/healthz")).body == "ok"
