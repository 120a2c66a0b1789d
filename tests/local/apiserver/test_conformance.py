"""The embedded API answers as a real kube-apiserver does: the same requests, the same codes, bodies and watch events.

What differs on purpose is not in the table, and is said here:

- messages about bodies that are no JSON, or of the wrong type, are our own; their codes and reasons agree;
- a resourceVersion that is no number, and one set on create, get 400 and not 500;
- null is no object and no patch: it gets 400;
- managedFields are not kept, and the columns of a Table are not described.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.local.apiserver.client import MERGE, OPERATIONS, STRATEGIC, Client
from tests.local.apiserver.pair import Call, Seen, play_both

MAPS = "/api/v1/namespaces/{ns}/configmaps"
JOBS = "/apis/diengine.opendilab.org/v1alpha1/namespaces/{ns}/dijobs"
TRAININGS = "/apis/elasticdeeplearning.ai/v1/namespaces/{ns}/aitrainingjobs"
PODS = "/api/v1/namespaces/{ns}/pods"
SERVICES = "/api/v1/namespaces/{ns}/services"
EVENTS = "/api/v1/namespaces/{ns}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE_FORM = "application/json;as=Table;v=v1;g=meta.k8s.io"
ACCEPTS = (
    "application/json",
    "*/*",
    "text/plain, */*",
    "application/json;as=Odd;g=meta.k8s.io;v=v1, application/json",
)
TEMPLATE = {"spec": {"containers": [{"name": "di-container", "image": "i"}]}}


_META = (
    "labels",
    "finalizers",
    "resourceVersion",
    "uid",
    "ownerReferences",
    "annotations",
    "namespace",
    "generateName",
)


def config(name: str, **more: Any) -> dict[str, Any]:
    """A ConfigMap; words of the metadata go there, all others to the top."""
    meta = {"name": name, **{key: more.pop(key) for key in _META if key in more}}
    return {"metadata": {key: value for key, value in meta.items() if value != ""}, **more}


def job(name: str, *, spec: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    whole = {"coordinator": {"template": TEMPLATE}, **(spec or {})}
    return {"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", **config(name, **more), "spec": whole}


def pod(name: str, *, spec: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {**config(name, **more), "spec": {"containers": [{"name": "c", "image": "i"}], **(spec or {})}}


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {**config(name), "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}], **spec}}


def version(seen: Seen, index: int = -1) -> str:
    return str(seen[index].body["metadata"]["resourceVersion"])


def uid(seen: Seen, index: int = -1) -> str:
    return str(seen[index].body["metadata"]["uid"])


def changes_since(path: str, index: int) -> Callable[[Seen], str]:
    return lambda seen: f"{path}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, index)}"


def next_page(path: str) -> Callable[[Seen], str]:
    return lambda seen: f"{path}&continue={seen[-1].body['metadata']['continue']}"


def owner(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": True}


def event(name: str) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "{ns}", "name": "x"}
    return {**config(name), "involvedObject": about, "reason": "R", "type": "Normal", "message": "m", "count": 1}


def maps(*names: str, **more: Any) -> list[Call]:
    return [Call("POST", MAPS, config(name, **more)) for name in names]


def refused_by(*bodies: Any, path: str = MAPS) -> list[Call]:
    return [Call("POST", path, body) for body in bodies]


def selected(*queries: str, path: str = MAPS) -> list[Call]:
    return [Call("GET", f"{path}?{query}") for query in queries]


def patched(path: str, *patches: Any, content_type: str = MERGE) -> list[Call]:
    return [Call("PATCH", path, patch, content_type) for patch in patches]


HELD: Mapping[str, Any] = {"finalizers": ["example.com/hold"]}
BOUND = {**config("a"), "target": {"kind": "Node", "name": "n1"}}
TABLE: Mapping[str, Sequence[Call]] = {
    "life of a config map": [
        Call("POST", MAPS, config("a", data={"x": "1"})),
        Call("POST", MAPS, config("a")),
        Call("GET", f"{MAPS}/a"),
        Call("GET", f"{MAPS}/b"),
        Call("PUT", f"{MAPS}/a", config("a", data={"x": "2"})),
        Call("PUT", f"{MAPS}/a", config("a", data={"x": "2"})),
        Call("PATCH", f"{MAPS}/a", {"data": {"x": None, "y": "1"}}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"data": {"z": "1"}}, STRATEGIC),
        Call("PATCH", f"{MAPS}/a", [{"op": "add", "path": "/data/q", "value": "1"}], OPERATIONS),
        Call("PATCH", f"{MAPS}/a", {}, MERGE),
        Call("GET", MAPS),
        Call("DELETE", f"{MAPS}/a"),
        Call("DELETE", f"{MAPS}/a"),
        Call("GET", MAPS),
    ],
    "what nobody may create": refused_by(
        config(""),
        config("UPPER"),
        config("a", labels={"bad key": "x"}),
        config("a", labels={"k": "bad value"}),
        config("a", annotations={"bad key": "x"}),
        config("a", namespace="other"),
        config("a", finalizers=["unqualified"]),
        config("a", finalizers=["bad name/x"]),
        config("a", ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": ""}]),
        config("a", ownerReferences=[{"apiVersion": "", "kind": "", "name": "x", "uid": "u"}]),
        config("a", ownerReferences=[owner("x"), owner("y")]),
        config("x" * 254),
    ),
    "what may be left out": [
        *refused_by(
            config("a", labels={}, annotations={}, finalizers=[], ownerReferences=[], data={}),
            config("b", labels={"x": None}, data={"y": None}),
            {"kind": "ConfigMap", "apiVersion": "v1", **config("c")},
            {"metadata": {"name": "d", "creationTimestamp": None, "uid": "mine", "generation": 7, "selfLink": "x"}},
            {"metadata": {"name": "e", "deletionTimestamp": "2020-01-01T00:00:00Z"}},
        ),
        Call("GET", MAPS),
    ],
    "namespaces that are not there": [
        Call("POST", "/api/v1/namespaces/absent/configmaps", config("a")),
        Call("GET", "/api/v1/namespaces/absent/configmaps"),
        Call("GET", "/api/v1/namespaces/absent/configmaps/a"),
        Call("GET", "/api/v1/namespaces/absent"),
        Call("DELETE", "/api/v1/namespaces/absent"),
        Call("DELETE", "/api/v1/namespaces/default"),
    ],
    "paths and methods that are not there": [
        Call("GET", "/api/v1/namespaces/{ns}/absent"),
        Call("GET", "/api/v1/namespaces/{ns}/absent/x"),
        Call("GET", "/api/v2/pods"),
        Call("GET", "/apis/absent.example.com/v1/things"),
        Call("GET", "/apis/diengine.opendilab.org/v1alpha1/things"),
        Call("GET", "/absent"),
        Call("POST", "/api/v1/configmaps", config("a")),
        Call("DELETE", "/api/v1/configmaps"),
        Call("PUT", MAPS, config("a")),
        Call("PATCH", MAPS, {}, MERGE),
        Call("POST", f"{MAPS}/a", config("a")),
        Call("GET", f"{MAPS}/a/status"),
        Call("GET", "/api/v1/configmaps/a"),
        Call("GET", "/api/v1/namespaces/{ns}/nodes"),
        Call("DELETE", "/api/v1/namespaces"),
    ],
    "options that do not go": [
        Call("POST", f"{MAPS}?fieldValidation=Odd", config("a")),
        Call("POST", f"{MAPS}?dryRun=Odd", config("a")),
        Call("POST", f"{MAPS}?dryRun=All", config("a")),
        Call("POST", f"{MAPS}?fieldValidation=Strict", config("a", odd=1)),
        Call("POST", f"{MAPS}?fieldValidation=Ignore", config("a", odd=1)),
        Call("POST", MAPS, config("b", odd=1)),
        Call("PUT", f"{MAPS}/a?dryRun=All", config("a", data={"x": "1"})),
        Call("PATCH", f"{MAPS}/a?dryRun=All", {"data": {"x": "1"}}, MERGE),
        Call("DELETE", f"{MAPS}/a?dryRun=All"),
        Call("DELETE", f"{MAPS}/a", {"dryRun": ["All"]}),
        Call("DELETE", f"{MAPS}/a", {"dryRun": ["Odd"]}),
        Call("DELETE", f"{MAPS}/a?propagationPolicy=Odd"),
        Call("DELETE", f"{MAPS}/a", {"orphanDependents": True, "propagationPolicy": "Orphan"}),
        Call("DELETE", f"{MAPS}/a?gracePeriodSeconds=x"),
        Call("GET", f"{MAPS}/a"),
    ],
    "questions about users": [
        Call("POST", ACCESS, {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "odd": 1}}}),
        Call("POST", ACCESS, {"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}}),
        Call("POST", RULES, {"spec": {}}),
        Call("POST", TOKENS, {"spec": {"token": "x"}}),
        Call("POST", TOKENS, {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1"}),
        Call("GET", TOKENS),
        Call("DELETE", TOKENS),
        Call("GET", f"{TOKENS}/x"),
        Call("POST", f"{TOKENS}?dryRun=Odd", {"spec": {"token": "x"}}),
    ],
    "commands that cannot run": [
        Call("POST", PODS, pod("a", spec={"containers": [{"name": n, "image": "i"} for n in "xy"]})),
        *[
            Call(method, f"{PODS}/{path}")
            for method in ("GET", "POST")
            for path in (
                "a/exec?command=ls&stdout=true",
                "a/exec?command=ls&stdout=true&container=absent",
                "a/exec?command=ls&stdout=true&container=x",
                "absent/exec?command=ls",
                "a/portforward",
                "absent/portforward",
            )
        ],
        Call("PUT", f"{PODS}/a/exec?command=ls"),
    ],
    "updates that do not fit": [
        *maps("a"),
        Call("PUT", f"{MAPS}/a", config("b")),
        Call("PUT", f"{MAPS}/a", config("")),
        Call("PUT", f"{MAPS}/absent", config("absent")),
        Call("PUT", f"{MAPS}/a", config("a", resourceVersion="1")),
        Call("PUT", f"{MAPS}/a", lambda seen: config("a", resourceVersion=version(seen, 0), uid=uid(seen, 0))),
        Call("PUT", f"{MAPS}/a", config("a", namespace="other")),
        Call("PUT", f"{MAPS}/a", {"metadata": {"name": "a", "deletionTimestamp": "2020-01-01T00:00:00Z"}}),
        Call("PUT", f"{MAPS}/a", {"metadata": {"name": "a", "creationTimestamp": "2020-01-01T00:00:00Z"}}),
        Call("PUT", f"{MAPS}/a", {"metadata": {"name": "a", "generation": 7, "deletionGracePeriodSeconds": 3}}),
        Call("PUT", f"{MAPS}/a", config("a", labels={"bad key": ""})),
        Call("GET", f"{MAPS}/a"),
    ],
    "patches that do not fit": [
        *maps("a", data={"x": "1"}),
        *patched(
            f"{MAPS}/a",
            {"metadata": {"name": "b"}},
            {"metadata": {"resourceVersion": "1"}},
            {"metadata": {"namespace": "b"}},
            {"metadata": {"uid": None}},
            {"metadata": {"labels": {"x": "y"}}},
            {"metadata": {"labels": {"x": None}}},
            {"metadata": {"finalizers": ["a.b/c"]}},
            {"metadata": {"finalizers": None}},
        ),
        Call("PATCH", f"{MAPS}/absent", {}, MERGE),
        Call("PATCH", f"{MAPS}/a", {}, "text/plain"),
        Call("GET", f"{MAPS}/a"),
    ],
    "JSON patches": [
        *maps("a", data={"x": "1", "a/b": "2"}),
        *patched(
            f"{MAPS}/a",
            [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "remove", "path": "/data/x"}],
            [
                {"op": "copy", "from": "/data/a~1b", "path": "/data/c"},
                {"op": "move", "from": "/data/c", "path": "/data/d"},
            ],
            [{"op": "replace", "path": "/data/d", "value": "3"}],
            [{"op": "replace", "path": "/metadata/labels", "value": {"l": "1"}}],
            [{"op": "add", "path": "/metadata/labels", "value": {"l": "1"}}],
            [],
            [{"op": "test", "path": "/data/absent", "value": None}],
            [{"op": "test", "path": "/data/absent", "value": "x"}],
            [{"op": "remove", "path": "/data/absent"}],
            [{"op": "replace", "path": "/data/absent", "value": "x"}],
            [{"op": "add", "path": "/absent/below", "value": "x"}],
            [{"op": "odd", "path": "/data/x", "value": "x"}],
            [{"op": "remove", "path": "data"}],
            [{"op": "copy", "from": "/absent", "path": "/data/x"}],
            [{"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c", "a.b/d"]}],
            [{"op": "add", "path": "/metadata/finalizers/-", "value": "a.b/e"}],
            [{"op": "add", "path": "/metadata/finalizers/0", "value": "a.b/f"}],
            [{"op": "remove", "path": "/metadata/finalizers/9"}],
            [{"op": "remove", "path": "/metadata/finalizers/0"}],
            [{"op": "replace", "path": "/metadata/finalizers/1", "value": "a.b/g"}],
            [{"op": "remove", "path": "/metadata/finalizers"}],
            content_type=OPERATIONS,
        ),
        Call("GET", f"{MAPS}/a"),
    ],
    "finalizers": [
        Call("POST", MAPS, config("a", finalizers=["example.com/one", "example.com/two"])),
        Call("DELETE", f"{MAPS}/a"),
        Call("GET", f"{MAPS}/a"),
        Call("DELETE", f"{MAPS}/a"),
        Call("PATCH", f"{MAPS}/a", {"data": {"still": "here"}}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/new"]}}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"metadata": {"deletionTimestamp": None}}, MERGE),
        Call("POST", MAPS, config("a")),
        Call("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/two"]}}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, MERGE),
        Call("GET", f"{MAPS}/a"),
        Call("WATCH", lambda seen: f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 0)}"),
    ],
    "preconditions of a deletion": [
        *maps("a"),
        Call("DELETE", f"{MAPS}/a", {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
        Call("DELETE", f"{MAPS}/a", {"preconditions": {"resourceVersion": "x"}}),
        Call("DELETE", f"{MAPS}/a", lambda seen: {"preconditions": {"uid": uid(seen, 0)}}),
        *maps("b"),
        Call("DELETE", f"{MAPS}/b", lambda seen: {"preconditions": {"resourceVersion": version(seen)}}),
        Call("DELETE", f"{MAPS}/b", {"preconditions": {"uid": "x"}}),
        *maps("c"),
        Call("DELETE", f"{MAPS}/c", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}),
        Call("GET", MAPS),
    ],
    "selectors": [
        Call("POST", MAPS, config("a", labels={"app": "x", "tier": "1"})),
        Call("POST", MAPS, config("b", labels={"app": "y", "tier": "2"})),
        Call("POST", MAPS, config("c", labels={"app": ""})),
        *maps("d"),
        *selected(
            "labelSelector=app=x",
            "labelSelector=app==x",
            "labelSelector=app!=x",
            "labelSelector=app",
            "labelSelector=!app",
            "labelSelector=app%20in%20(x,y)",
            "labelSelector=app%20notin%20(x,y)",
            "labelSelector=app=",
            "labelSelector=app%20in%20()",
            "labelSelector=app%20in%20(,x)",
            "labelSelector=tier%3E1",
            "labelSelector=tier%3C2,app",
            "labelSelector=%20app%20=%20x%20,%20tier%20=%201%20",
            "labelSelector=in=x",
            "fieldSelector=metadata.name=a",
            "fieldSelector=metadata.name!=a",
            "fieldSelector=metadata.name=a,metadata.name=b",
            "fieldSelector=metadata.namespace={ns}",
            "fieldSelector=metadata.name==a&labelSelector=app=x",
            "labelSelector=",
            "fieldSelector=,",
        ),
    ],
    "selectors that cannot be read": selected(
        "labelSelector=a===b",
        "labelSelector=a%20in%20(",
        "labelSelector=a%20in%20(b",
        "labelSelector=a%20in%20b",
        "labelSelector=a%20b",
        "labelSelector=,",
        "labelSelector=a,",
        "labelSelector=a,,b",
        "labelSelector=!",
        "labelSelector=!a=b",
        "labelSelector=(a)",
        "labelSelector=a%3Eb",
        "labelSelector=a=b=c",
        "labelSelector=bad%20key/=x",
        "labelSelector=-a",
        "labelSelector=a=-b",
        "labelSelector=a/b/c",
        "labelSelector=/a",
        "labelSelector=A.B/c",
        "fieldSelector=a",
        "fieldSelector=a=b",
        "fieldSelector=metadata.name=a\\",
        "fieldSelector=metadata.name=a=b",
        "limit=x",
        "limit=99999999999999999999",
        "timeoutSeconds=x&watch=1",
        "resourceVersion=x",
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Odd",
        "resourceVersionMatch=NotOlderThan&watch=1",
        "sendInitialEvents=true&watch=1",
        "sendInitialEvents=true",
        "continue=x&resourceVersionMatch=Exact&resourceVersion=1",
    ),
    "field selectors of other kinds": [
        Call("POST", PODS, pod("a")),
        Call("POST", f"{PODS}/a/binding", BOUND),
        Call("POST", PODS, pod("b")),
        *selected(
            "fieldSelector=spec.nodeName=n1",
            "fieldSelector=spec.nodeName=",
            "fieldSelector=spec.nodeName!=n1,status.phase=Pending",
            "fieldSelector=status.phase=Running",
            "fieldSelector=spec.restartPolicy=Always",
            "fieldSelector=spec.schedulerName=default-scheduler",
            "fieldSelector=spec.hostNetwork=false",
            "fieldSelector=spec.odd=1",
            path=PODS,
        ),
        *selected("fieldSelector=spec.odd=1", "fieldSelector=metadata.name=x", path=JOBS),
        *selected("fieldSelector=spec.odd=1", "fieldSelector=spec.type=ClusterIP", path=SERVICES),
        *selected("fieldSelector=odd=1", "fieldSelector=involvedObject.name=x", "fieldSelector=source=x", path=EVENTS),
        *selected("fieldSelector=odd=1", "fieldSelector=type=x", path="/api/v1/namespaces/{ns}/secrets"),
        *selected("fieldSelector=odd=1", path=LEASES),
        *selected("fieldSelector=odd=1", "fieldSelector=metadata.name=x,spec.unschedulable=true", path="/api/v1/nodes"),
        *selected("fieldSelector=odd=1", "fieldSelector=metadata.name={ns}", path="/api/v1/namespaces"),
    ],
    "pages": [
        *maps("a", "b", "c", "d", "e"),
        Call("GET", f"{MAPS}?limit=2"),
        Call("DELETE", f"{MAPS}/d"),
        Call("POST", MAPS, config("f")),
        Call("GET", lambda seen: f"{MAPS}?limit=2&continue={seen[5].body['metadata']['continue']}"),
        Call("GET", next_page(f"{MAPS}?limit=2")),
        Call("GET", lambda seen: f"{MAPS}?continue={seen[5].body['metadata']['continue']}"),
        Call("GET", f"{MAPS}?limit=5"),
        Call("GET", f"{MAPS}?limit=2&labelSelector=!x"),
        Call("GET", next_page(f"{MAPS}?limit=2&labelSelector=!x")),
        Call("GET", f"{MAPS}?limit=-1"),
        Call("GET", lambda seen: f"{MAPS}?resourceVersion={version(seen, 1)}&resourceVersionMatch=Exact"),
        Call("GET", lambda seen: f"{MAPS}?resourceVersion={version(seen, 1)}&resourceVersionMatch=NotOlderThan"),
        Call("GET", lambda seen: f"{MAPS}?resourceVersion={version(seen, 1)}&limit=1"),
        Call("GET", lambda seen: f"{MAPS}?resourceVersion={version(seen, 1)}"),
        Call("GET", f"{MAPS}?resourceVersion=0"),
    ],
    "watches": [
        *maps("a", "b"),
        Call("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"in": "yes"}}}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"data": {"x": "1"}}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"in": "no"}}}, MERGE),
        Call("DELETE", f"{MAPS}/a"),
        Call("PATCH", f"{MAPS}/b", {"metadata": {"labels": {"in": "yes"}}}, MERGE),
        Call("DELETE", f"{MAPS}/b"),
        *maps("c"),
        Call("WATCH", f"{MAPS}?watch=1&timeoutSeconds=1"),
        Call("WATCH", f"{MAPS}?watch=true&timeoutSeconds=1&resourceVersion=0"),
        Call("WATCH", lambda seen: f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 0)}"),
        Call("WATCH", lambda seen: f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 4)}"),
        Call(
            "WATCH",
            lambda seen: f"{MAPS}?watch=1&timeoutSeconds=1&labelSelector=in=yes&resourceVersion={version(seen, 0)}",
        ),
        Call(
            "WATCH",
            lambda seen: (
                f"{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=a&resourceVersion={version(seen, 0)}"
            ),
        ),
        Call("WATCH", f"{MAPS}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        Call("WATCH", lambda seen: f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 8)}"),
    ],
    "life of a job": [
        Call("POST", JOBS, job("a", status={"phase": "mine"})),
        Call("POST", JOBS, job("a")),
        Call("GET", f"{JOBS}/a"),
        Call("PATCH", f"{JOBS}/a", {"metadata": {"labels": {"x": "y"}}}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"spec": {"priorityClassName": "x"}, "status": {"phase": "no"}}, MERGE),
        Call(
            "PATCH", f"{JOBS}/a/status", {"status": {"phase": "Running"}, "metadata": {"labels": {"no": "no"}}}, MERGE
        ),
        Call("PATCH", f"{JOBS}/a/status", {"status": {"phase": "Running"}, "spec": {"cleanPodPolicy": "None"}}, MERGE),
        Call("GET", f"{JOBS}/a/status"),
        Call("PUT", f"{JOBS}/a", job("a")),
        Call("PUT", f"{JOBS}/a", job("a", resourceVersion="1")),
        Call(
            "PUT", f"{JOBS}/a", lambda seen: job("a", resourceVersion=version(seen, 7), spec={"cleanPodPolicy": "All"})
        ),
        Call(
            "PUT", f"{JOBS}/a/status", lambda seen: job("a", resourceVersion=version(seen), status={"phase": "Failed"})
        ),
        Call("PUT", f"{JOBS}/a/status", job("a")),
        Call("PUT", f"{JOBS}/absent", job("absent")),
        Call("PATCH", f"{JOBS}/a", {"spec": {"odd": 1}}, MERGE),
        Call("PATCH", f"{JOBS}/a?fieldValidation=Ignore", {"spec": {"odd": 1}}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"spec": {"coordinator": {"template": None}}}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"spec": {"cleanPodPolicy": "Odd"}}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"kind": "Odd"}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"metadata": {"resourceVersion": "1"}}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"metadata": {"name": "b"}}, MERGE),
        Call("PATCH", f"{JOBS}/a", {}, STRATEGIC),
        Call("GET", JOBS),
        Call("GET", f"{JOBS}/a/scale"),
        Call("GET", f"{JOBS}/a/odd"),
        Call("DELETE", f"{JOBS}/a"),
        Call("GET", f"{JOBS}/a"),
        Call("WATCH", lambda seen: f"{JOBS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 0)}"),
    ],
    "jobs that are refused": refused_by(
        job(""),
        job("a", labels={"bad key": ""}),
        {**job("a"), "kind": "Odd"},
        {**job("a"), "apiVersion": "diengine.opendilab.org/v9"},
        {**job("a"), "spec": {"coordinator": {}}},
        job("a", spec={"cleanPodPolicy": "Odd"}),
        job("a", finalizers=["unqualified"]),
        path=JOBS,
    ),
    # Of a kind without CEL rules, which only the real one evaluates.
    "a custom name that is refused": refused_by(
        {
            "apiVersion": "diengine.opendilab.org/v1alpha1",
            "kind": "AggregatorConfig",
            "metadata": {"name": "UPPER"},
            "spec": {"aggregator": {"template": TEMPLATE}},
        },
        path="/apis/diengine.opendilab.org/v1alpha1/namespaces/{ns}/aggregatorconfigs",
    ),
    "a job with a finalizer": [
        Call("POST", JOBS, job("a", **HELD)),
        Call("DELETE", f"{JOBS}/a"),
        Call("DELETE", f"{JOBS}/a"),
        Call("PATCH", f"{JOBS}/a/status", {"status": {"phase": "Failed"}}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"metadata": {"finalizers": None}}, MERGE),
        Call("GET", f"{JOBS}/a"),
        Call("WATCH", lambda seen: f"{JOBS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 0)}"),
    ],
    "generated names": [
        Call("POST", JOBS, job("", generateName="a-")),
        Call("DELETE", lambda seen: f"{JOBS}/{seen[0].body['metadata']['name']}"),
        Call("POST", MAPS, config("", generateName="UPPER-")),
        Call("POST", MAPS, config("", generateName="a.b-")),
    ],
    "a pod that no node has": [
        Call("POST", PODS, pod("a")),
        Call("GET", f"{PODS}/a"),
        Call("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}}, STRATEGIC),
        Call("PATCH", f"{PODS}/a", {"spec": {"containers": [{"name": "c", "image": "j"}]}}, STRATEGIC),
        Call("PATCH", f"{PODS}/a", {"spec": {"nodeName": "n1"}}, MERGE),
        Call("DELETE", f"{PODS}/a"),
        Call("GET", f"{PODS}/a"),
        Call("WATCH", lambda seen: f"{PODS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 0)}"),
    ],
    "a pod on a node": [
        Call("POST", PODS, pod("a")),
        Call("POST", f"{PODS}/a/binding", BOUND),
        Call("POST", f"{PODS}/a/binding", BOUND),
        Call("POST", f"{PODS}/absent/binding", {**BOUND, **config("absent")}),
        Call("POST", f"{PODS}/absent/binding", BOUND),
        Call("GET", f"{PODS}/a"),
        Call("PATCH", f"{PODS}/a/status", {"status": {"phase": "Running"}}, MERGE),
        Call("DELETE", f"{PODS}/a"),
        Call("DELETE", f"{PODS}/a"),
        Call("DELETE", f"{PODS}/a?gracePeriodSeconds=100"),
        Call("DELETE", f"{PODS}/a?gracePeriodSeconds=10"),
        Call("PATCH", f"{PODS}/a/status", {"status": {"phase": "Failed"}}, MERGE),
        Call("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0}),
        Call("GET", f"{PODS}/a"),
        Call("WATCH", lambda seen: f"{PODS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 0)}"),
    ],
    "a pod that is killed, one that has ended, one that is held": [
        *[Call("POST", PODS, pod(name, spec={"nodeName": "n1"})) for name in ("a", "b")],
        Call("POST", PODS, pod("c", spec={"nodeName": "n1"}, **HELD)),
        Call("DELETE", f"{PODS}/a?gracePeriodSeconds=0"),
        Call("PATCH", f"{PODS}/b/status", {"status": {"phase": "Succeeded"}}, MERGE),
        Call("DELETE", f"{PODS}/b"),
        Call("DELETE", f"{PODS}/c"),
        Call("DELETE", f"{PODS}/c?gracePeriodSeconds=0"),
        Call("PATCH", f"{PODS}/c", {"metadata": {"finalizers": None}}, MERGE),
        Call("GET", PODS),
        Call("POST", PODS, pod("d", spec={"nodeName": "n1", "terminationGracePeriodSeconds": 5})),
        Call("DELETE", f"{PODS}/d?gracePeriodSeconds=-1"),
        Call("DELETE", f"{PODS}/d?gracePeriodSeconds=0"),
        Call("WATCH", lambda seen: f"{PODS}?watch=1&timeoutSeconds=1&resourceVersion={version(seen, 2)}"),
    ],
    "services": [
        Call("POST", SERVICES, service("a")),
        Call("PUT", f"{SERVICES}/b", service("b")),
        Call("PATCH", f"{SERVICES}/a", {"spec": {"selector": {"a": "c"}}}, MERGE),
        Call("PATCH", f"{SERVICES}/a", {"spec": {"ports": [{"port": 81}]}}, STRATEGIC),
        Call("POST", SERVICES, service("c", ports=[])),
        Call("POST", SERVICES, service("UPPER")),
        Call("GET", SERVICES),
        Call("DELETE", f"{SERVICES}/a"),
        Call("DELETE", f"{SERVICES}/a"),
    ],
    "collections": [
        Call("POST", MAPS, config("a", labels={"x": "1"})),
        Call("POST", MAPS, config("b", labels={"x": "2"}, **HELD)),
        Call("POST", MAPS, config("c")),
        Call("DELETE", f"{MAPS}?labelSelector=x=1"),
        Call("DELETE", f"{MAPS}?labelSelector=x=2&propagationPolicy=Odd"),
        Call("DELETE", f"{MAPS}?labelSelector=x"),
        Call("GET", MAPS),
        Call("POST", JOBS, job("a")),
        Call("DELETE", JOBS),
        Call("GET", JOBS),
        Call("POST", PODS, pod("a", spec={"nodeName": "n1"})),
        Call("DELETE", f"{PODS}?gracePeriodSeconds=3"),
        Call("GET", PODS),
    ],
    "forms of an answer": [
        *[Call("GET", MAPS, accept=accept) for accept in ACCEPTS],
        Call("POST", JOBS, job("a")),
        Call("GET", f"{JOBS}/a", accept=PARTIAL),
        Call("GET", JOBS, accept=PARTIAL_LIST),
        Call("GET", f"{JOBS}?includeObject=Odd", accept=TABLE_FORM),
        Call("POST", MAPS, config("a", data={"x": "y"})),
        Call("POST", PODS, pod("a")),
        Call("POST", SERVICES, service("a")),
        *[Call("GET", path, accept=TABLE_FORM) for path in (MAPS, JOBS, PODS, SERVICES, LEASES, EVENTS)],
        *[Call("GET", f"{path}/a?includeObject=Object", accept=TABLE_FORM) for path in (MAPS, JOBS, PODS, SERVICES)],
        Call("POST", MAPS, config("b"), accept=TABLE_FORM),
        Call("GET", f"{MAPS}/absent", accept=TABLE_FORM),
    ],
    "events, leases and secrets": [
        Call("POST", EVENTS, event("a")),
        Call("GET", f"{EVENTS}?fieldSelector=involvedObject.name=x,type=Normal"),
        Call("PATCH", f"{EVENTS}/a", {"count": 2}, MERGE),
        Call("POST", LEASES, {**config("a"), "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}),
        Call("PUT", f"{LEASES}/a", {**config("a"), "spec": {"holderIdentity": "you"}}),
        Call("PUT", f"{LEASES}/b", {**config("b"), "spec": {"holderIdentity": "you"}}),
        Call(
            "PUT",
            f"{LEASES}/a",
            lambda seen: {**config("a", resourceVersion=version(seen, 3)), "spec": {"holderIdentity": "you"}},
        ),
        Call("POST", "/api/v1/namespaces/{ns}/secrets", config("a", stringData={"x": "y"})),
        Call("POST", "/api/v1/namespaces/{ns}/secrets", config("b", data={"x": "eQ=="}, type="Opaque")),
        Call("GET", "/api/v1/namespaces/{ns}/secrets"),
    ],
    "a terminating namespace": [
        Call("DELETE", "/api/v1/namespaces/{ns}", {"dryRun": ["All"]}),
        Call("POST", MAPS, config("a", **HELD)),
        Call("DELETE", "/api/v1/namespaces/{ns}"),
        Call("POST", MAPS, config("b")),
    ],
}


@pytest.mark.parametrize("name", TABLE)
async def test_a_sequence_gets_the_same_answers(name: str, api: Client, real: Client, namespace: str) -> None:
    mine, theirs = await play_both(api, real, namespace, TABLE[name])
    for call, ours, expected in zip(TABLE[name], mine, theirs, strict=True):
        assert ours == expected, call


UNREADABLE = (b"", b"{", b"[]", b'"x"', b"1", b"{}}", b'{"metadata":')
WRONG_TYPES: Sequence[Any] = (
    {"metadata": {"labels": {"x": 1}}},
    {"metadata": {"labels": "x"}},
    {"metadata": "x"},
    {"metadata": {"ownerReferences": {}}},
    {"metadata": {"finalizers": [1]}},
    {"metadata": {"creationTimestamp": "x"}},
    {"metadata": {"annotations": {"x": {}}}},
)
# Requests whose answers agree in code and reason; about what is wrong, each server has its own words.
ALIKE: Mapping[str, Sequence[Call]] = {
    "bodies that cannot be read": [
        *[Call("POST", path, body) for path in (MAPS, JOBS, PODS) for body in UNREADABLE],
        Call("POST", MAPS, config("a", data={"x": 1})),
        Call("POST", MAPS, config("a", data=[])),
        Call("POST", PODS, {**pod("a"), "spec": []}),
        Call("POST", PODS, pod("a", spec={"containers": {}})),
        *[Call("POST", MAPS, wrong) for wrong in WRONG_TYPES],
        *[Call("POST", JOBS, {**job("a"), **wrong}) for wrong in WRONG_TYPES],
        Call("POST", MAPS, b"x: y", "application/odd"),
        Call("POST", MAPS, {**config("a"), "kind": "Pod"}),
        Call("POST", MAPS, {**config("a"), "apiVersion": "v2"}),
        Call("POST", JOBS, config("a")),
    ],
    "questions that cannot be read": [
        Call("POST", ACCESS, {"spec": {}}),
        Call("POST", ACCESS, {"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}}),
        Call("POST", ACCESS, {"spec": {"resourceAttributes": []}}),
        Call("POST", TOKENS, {"spec": {"token": 1}}),
        Call("POST", TOKENS, {"kind": "Pod", "apiVersion": "v1"}),
        *[Call("POST", TOKENS, body) for body in UNREADABLE],
    ],
    "patches that cannot be read": [
        Call("POST", MAPS, config("a")),
        Call("POST", JOBS, job("a")),
        *[
            Call("PATCH", f"{path}/a", body, content_type)
            for path, content_types in ((MAPS, (MERGE, OPERATIONS, STRATEGIC)), (JOBS, (MERGE, OPERATIONS)))
            for content_type in content_types
            for body in UNREADABLE
        ],
        *[Call("PATCH", f"{MAPS}/a", wrong, MERGE) for wrong in ({"data": {"x": 1}}, {"data": []}, *WRONG_TYPES)],
        *[Call("PATCH", f"{MAPS}/a", wrong, STRATEGIC) for wrong in ({"data": {"x": 1}}, {"data": []}, *WRONG_TYPES)],
        *[Call("PATCH", f"{JOBS}/a", wrong, MERGE) for wrong in WRONG_TYPES],
        Call("PATCH", f"{MAPS}/a?fieldValidation=Strict", {"odd": 1}, MERGE),
        Call("PATCH", f"{JOBS}/a?fieldValidation=Strict", {"spec": {"odd": 1}}, MERGE),
        Call("PATCH", f"{JOBS}/a/status?fieldValidation=Strict", {"status": {"phase": "x", "odd": 1}}, MERGE),
        Call("PATCH", f"{JOBS}/a/status?fieldValidation=Strict", {"status": {"odd": {"deep": 1}, "odder": [1]}}, MERGE),
        Call("PATCH", f"{JOBS}/a/status?fieldValidation=Strict", {"status": {"odd": None}}, MERGE),
        Call(
            "PATCH",
            f"{JOBS}/a/status?fieldValidation=Strict",
            {"metadata": {"resourceVersion": "1"}, "status": {"odd": 1}},
            MERGE,
        ),
        Call("PATCH", f"{JOBS}/a/status?fieldValidation=Strict", {"status": {"phase": "x"}}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"kind": "Odd"}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"apiVersion": "v2"}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"apiVersion": "v2"}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"metadata": None}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"metadata": None}, MERGE),
        Call("PATCH", f"{MAPS}/a", {"metadata": {"uid": "x"}}, MERGE),
        Call("PATCH", f"{JOBS}/a", {"metadata": {"uid": "x"}}, MERGE),
        Call("PUT", f"{MAPS}/a", config("a", uid="x")),
    ],
    "deletions that cannot be read": [
        Call("POST", MAPS, config("a")),
        *[Call("DELETE", f"{MAPS}/a", body) for body in (b"{", b"[]", b'"x"', b"1")],
        Call("DELETE", f"{MAPS}/a", {"gracePeriodSeconds": "x"}),
        Call("DELETE", f"{MAPS}/a", {"preconditions": {"uid": 1}}),
        Call("DELETE", f"{MAPS}/a", {"propagationPolicy": 1}),
        Call("DELETE", f"{MAPS}/a", {"kind": "Odd", "apiVersion": "v1"}),
        Call("DELETE", f"{MAPS}/a", b"x", "application/odd"),
        Call("DELETE", f"{MAPS}/a?gracePeriodSeconds=x"),
        Call("GET", f"{MAPS}?continue=x"),
        Call("GET", f"{MAPS}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiIifQ"),
        Call("GET", MAPS, accept="application/odd"),
        Call("POST", MAPS, config("b"), accept="application/odd"),
    ],
}


def sort_of(answer: Any) -> tuple[int, str]:
    body = answer["body"]
    return answer["code"], body.get("reason", "") if isinstance(body, dict) else ""


@pytest.mark.parametrize("name", ALIKE)
async def test_a_sequence_gets_answers_of_the_same_sort(name: str, api: Client, real: Client, namespace: str) -> None:
    mine, theirs = await play_both(api, real, namespace, ALIKE[name])
    for index, (call, ours, expected) in enumerate(zip(ALIKE[name], mine, theirs, strict=True)):
        assert sort_of(ours) == sort_of(expected), f"request {index}: {call}"


SEQUENCES = 30
REQUESTS = 25


def any_call(choose: random.Random) -> Call:
    """A request about one of three objects, right or wrong."""
    path, body = choose.choice(((MAPS, config), (JOBS, job), (PODS, pod)))
    name = choose.choice("abc")
    item = f"{path}/{name}"
    labels = {"tier": choose.choice(("1", "2"))}
    what = choose.choice(("spec", "data"))
    change = {what: {choose.choice(("priority", "group")): choose.choice(("x", "y", None))}}
    finalizers = choose.choice((None, ["example.com/hold"]))
    calls: Sequence[Call] = (
        Call("POST", path, body(name, labels=labels)),
        Call("POST", path, body(name, finalizers=["example.com/hold"])),
        Call("POST", f"{path}?dryRun=All", body(name)),
        Call("PUT", item, body(name, labels=labels)),
        Call("PUT", item, lambda seen: body(name, labels=labels, resourceVersion=latest(seen, name))),
        Call("PATCH", item, {"metadata": {"labels": labels}}, MERGE),
        Call("PATCH", item, {"metadata": {"finalizers": finalizers}}, MERGE),
        Call("PATCH", item, change, MERGE),
        Call("PATCH", item, [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}], OPERATIONS),
        Call("PATCH", item, [{"op": "test", "path": "/metadata/labels/tier", "value": "1"}], OPERATIONS),
        Call("PATCH", f"{item}/status", {"status": {"phase": choose.choice(("Created", "Running"))}}, MERGE),
        Call("POST", f"{item}/binding", {**config(name), "target": {"kind": "Node", "name": "n1"}}),
        Call("DELETE", item),
        Call("DELETE", f"{item}?gracePeriodSeconds={choose.choice((0, 3, 60))}"),
        Call("DELETE", item, lambda seen: {"preconditions": {"resourceVersion": latest(seen, name)}}),
        Call("DELETE", path),
        Call("GET", item),
        Call("GET", f"{path}?labelSelector=tier={choose.choice('12')}"),
        Call("GET", f"{path}?limit=2"),
    )
    # Emptying the collection too often leaves nothing to look at.
    weights = [1 if call.method == "DELETE" else 3 for call in calls]
    return choose.choices(calls, weights)[0]


def latest(seen: Seen, name: str) -> str:
    """The last version of an object that an answer showed; for one that was never seen, a wrong one."""
    for answer in reversed(seen):
        meta = answer.body.get("metadata", {}) if isinstance(answer.body, dict) else {}
        if meta.get("name") == name and "resourceVersion" in meta:
            return str(meta["resourceVersion"])
    return "1"


async def test_random_sequences_get_the_same_answers(api: Client, real: Client, namespace: str) -> None:
    async def compare(seed: int) -> None:
        choose = random.Random(seed)
        where = f"{namespace}-{seed}"
        await real.create("/api/v1/namespaces", {"metadata": {"name": where}})
        calls = [
            Call("POST", MAPS, config("first")),
            Call("POST", JOBS, job("first")),
            Call("POST", PODS, pod("first")),
            *(any_call(choose) for _ in range(REQUESTS)),
            Call("WATCH", changes_since(MAPS, 0)),
            Call("WATCH", changes_since(JOBS, 1)),
            Call("WATCH", changes_since(PODS, 2)),
        ]
        mine, theirs = await play_both(api, real, where, calls)
        for index, (call, ours, expected) in enumerate(zip(calls, mine, theirs, strict=True)):
            assert ours == expected, f"seed {seed}, request {index}: {call}"

    await asyncio.gather(*(compare(seed) for seed in range(SEQUENCES)))
