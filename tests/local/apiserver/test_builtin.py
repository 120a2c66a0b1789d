"""Built-in objects: ours and a real kube-apiserver fill in the same fields and refuse for the same causes."""

import copy
import json
from typing import Any, NamedTuple

import pytest

from tests.local.apiserver.client import Client
from trainmaster.local.apiserver.objects import builtin
from trainmaster.local.apiserver.objects import builtin_types as shape
from trainmaster.local.apiserver.objects.catalog import BUILT_IN
from trainmaster.local.apiserver.objects.resource import Served

Object = dict[str, Any]

SERVED = {str(served.resource): served for served in BUILT_IN}
PATHS = {
    "pods": "/api/v1/namespaces/default/pods",
    "services": "/api/v1/namespaces/default/services",
    "configmaps": "/api/v1/namespaces/default/configmaps",
    "secrets": "/api/v1/namespaces/default/secrets",
    "serviceaccounts": "/api/v1/namespaces/default/serviceaccounts",
    "events": "/api/v1/namespaces/default/events",
    "namespaces": "/api/v1/namespaces",
    "nodes": "/api/v1/nodes",
    "leases.coordination.k8s.io": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
}


def a_container(**fields: Any) -> Object:
    return {"name": "c", "image": "busybox", **fields}


def a_pod(*, metadata: Object | None = None, container: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "x", **(metadata or {})},
        "spec": {"containers": [a_container(**(container or {}))], **spec},
    }


def named(**fields: Any) -> Object:
    return {"metadata": {"name": "x"}, **fields}


def a_service(*ports: Object, **spec: Any) -> Object:
    return named(spec={"ports": list(ports) or [{"port": 80}], **spec})


class Verdict(NamedTuple):
    """What became of an object: stored, or refused with these words."""

    stored: Object
    refusal: str = ""
    causes: tuple[tuple[str, str, str], ...] = ()


def ours(served: Served, body: Object, old: Object | None = None) -> Verdict:
    obj = json.loads(json.dumps(body))  # a copy in which nothing is shared
    if served.namespaced:
        obj.setdefault("metadata", {}).setdefault("namespace", "default")
    try:
        shape.read(served.resource.kind, obj)
    except shape.WrongType as error:
        return Verdict({}, str(error))
    builtin.default(served, obj)
    why = builtin.refusal(served, obj) if old is None else ""
    if why:
        return Verdict({}, why)
    builtin.prepare(served, obj, old, "")
    causes = builtin.errors(served, obj, old)
    return Verdict({}, "invalid", tuple(sorted(causes))) if causes else Verdict(comparable(obj))


async def theirs(real: Client, method: str, path: str, body: Object) -> Verdict:
    answer = await real.request(method, f"{path}?dryRun=All", body)
    if answer.code < 400:
        return Verdict(comparable(answer.body))
    causes = (answer.body.get("details") or {}).get("causes")
    if causes:
        # The real one often validates twice.
        found = {(each.get("field", ""), each["reason"], each["message"]) for each in causes}
        return Verdict({}, "invalid", tuple(sorted(found)))
    return Verdict({}, answer.body["message"].partition(": ")[2])


_SERVERS_OWN = ("uid", "creationTimestamp", "resourceVersion", "managedFields", "name", "namespace")


def comparable(obj: Object) -> Object:
    found = copy.deepcopy({key: value for key, value in obj.items() if key not in ("kind", "apiVersion")})
    found["metadata"] = {key: value for key, value in found["metadata"].items() if key not in _SERVERS_OWN}
    spec = found.get("spec", {})
    if spec.get("clusterIP", "None") != "None":
        spec["clusterIP"], spec["clusterIPs"] = "some", ["some"]
    for port in spec.get("ports", ()):
        if port.get("nodePort"):
            port["nodePort"] = "some"
    return found


PROBES = {
    "livenessProbe": {"httpGet": {"port": 80}},
    "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
    "startupProbe": {"tcpSocket": {"port": "web"}},
}
FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
FILES = {"items": [{"path": "x", **FIELD}]}

GOOD: dict[str, tuple[str, Object]] = {
    "pod": ("pods", a_pod()),
    "pod-with-a-tag": ("pods", a_pod(container={"image": "registry.example:5000/a/b:1"})),
    "pod-of-a-registry-without-a-tag": ("pods", a_pod(container={"image": "registry.example:5000/a/b"})),
    "pod-with-a-digest": ("pods", a_pod(container={"image": "a@sha256:" + "0" * 64})),
    "pod-with-probes": ("pods", a_pod(container={**PROBES, "ports": [{"containerPort": 80, "name": "web"}]})),
    "pod-with-a-lifecycle": ("pods", a_pod(container={"lifecycle": {"preStop": {"httpGet": {"port": 1}}}})),
    "pod-with-limits": (
        "pods",
        a_pod(container={"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi", "nvidia.com/gpu": 1}}}),
    ),
    "pod-with-requests": (
        "pods",
        a_pod(container={"resources": {"limits": {"cpu": "2000m"}, "requests": {"cpu": "0.1", "memory": "1.5Gi"}}}),
    ),
    "pod-with-env": (
        "pods",
        a_pod(
            container={
                "env": [
                    {"name": "A", "valueFrom": FIELD},
                    {"name": "B", "value": ""},
                    {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}}},
                    {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "m"}, "prefix": "P_"}],
            }
        ),
    ),
    "pod-with-volumes": (
        "pods",
        a_pod(
            volumes=[
                {"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Ki"}},
                {"name": "b", "configMap": {"name": "x", "items": [{"key": "k", "path": "p/q"}]}},
                {"name": "c", "secret": {"secretName": "x", "defaultMode": 0o400}},
                {"name": "d", "hostPath": {"path": "/x", "type": "Directory"}},
                {"name": "e"},
                {"name": "f", "projected": {"sources": [{"configMap": {"name": "x"}}, {"downwardAPI": FILES}]}},
                {"name": "g", "downwardAPI": FILES},
                {"name": "h", "persistentVolumeClaim": {"claimName": "x"}},
            ],
            container={"volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": True, "subPath": "s"}]},
        ),
    ),
    "pod-on-the-host-network": ("pods", a_pod(hostNetwork=True, container={"ports": [{"containerPort": 80}]})),
    "pod-that-tolerates-everything": ("pods", a_pod(tolerations=[{"operator": "Exists"}])),
    "pod-that-tolerates-something": ("pods", a_pod(tolerations=[{"key": "a"}])),
    "pod-of-a-priority": ("pods", a_pod(priorityClassName="system-node-critical")),
    "pod-with-an-account": ("pods", a_pod(serviceAccountName="me", automountServiceAccountToken=False)),
    "pod-with-zeros": (
        "pods",
        a_pod(
            hostNetwork=False,
            terminationGracePeriodSeconds=0,
            volumes=[],
            nodeSelector={},
            hostname="",
            metadata={"labels": {}, "annotations": None},
            container={"tty": False, "args": [], "env": None, "workingDir": "", "command": ["a", ""]},
        ),
    ),
    "pod-with-unknown-fields": ("pods", a_pod(fromTheFuture=1, container={"odd": {"a": [1]}}) | {"more": 2}),
    "pod-with-a-status": ("pods", a_pod() | {"status": {"phase": "Running"}}),
    "pod-with-init-containers": (
        "pods",
        a_pod(initContainers=[{"name": "i", "image": "x"}, {"name": "s", "image": "x", "restartPolicy": "Always"}]),
    ),
    "pod-with-everything-around": (
        "pods",
        a_pod(
            restartPolicy="Never",
            activeDeadlineSeconds=5,
            hostname="h",
            subdomain="s",
            schedulerName="mine",
            dnsPolicy="Default",
            imagePullSecrets=[{"name": "p"}],
            hostAliases=[{"ip": "127.0.0.1", "hostnames": ["a.b"]}],
            affinity={"nodeAffinity": {}},
            securityContext={"runAsUser": 0, "fsGroup": 1},
            metadata={"labels": {"a": "b"}, "annotations": {"c": "d e"}, "finalizers": ["a.b/c"]},
        ),
    ),
    "service": ("services", a_service()),
    "headless-service": (
        "services",
        a_service({"port": 80, "targetPort": "web"}, clusterIP="None", selector={"a": "b"}),
    ),
    "headless-service-without-anything": ("services", named(spec={"clusterIP": "None"})),
    "service-with-ports": (
        "services",
        a_service({"port": 1, "name": "a"}, {"port": 1, "name": "b", "protocol": "UDP"}),
    ),
    "service-on-node-ports": ("services", a_service(type="NodePort")),
    "service-of-a-balancer": ("services", a_service(type="LoadBalancer")),
    "service-that-is-a-name": ("services", named(spec={"type": "ExternalName", "externalName": "a.b"})),
    "service-with-affinity": ("services", a_service(sessionAffinity="ClientIP", publishNotReadyAddresses=True)),
    "service-that-starts-with-a-digit": ("services", {**a_service(), "metadata": {"name": "1a"}}),
    "config-map": ("configmaps", named(data={"a": "b", "c.d_e-f": ""}, binaryData={"g": "eA=="}, immutable=False)),
    "secret": ("secrets", named(stringData={"a": "b"}, data={"c": "eA=="})),
    "service-account": ("serviceaccounts", named()),
    "event": (
        "events",
        named(
            involvedObject={"kind": "Pod", "name": "p", "namespace": "default"},
            reason="R",
            message="m",
            source={"component": "c"},
            firstTimestamp="2026-11-15T12:00:00Z",
            lastTimestamp=None,
            count=3,
        ),
    ),
    "lease": (
        "leases.coordination.k8s.io",
        named(spec={"holderIdentity": "a", "leaseDurationSeconds": 3, "renewTime": "2026-01-01T00:00:00.120000Z"}),
    ),
    "lease-without-anything": ("leases.coordination.k8s.io", named()),
    "namespace": ("namespaces", named()),
    "namespace-with-a-finalizer": ("namespaces", named(spec={"finalizers": ["a.b/c"]})),
    "node": ("nodes", named()),
    "node-with-a-status": (
        "nodes",
        named(
            spec={"taints": [{"key": "a", "effect": "NoSchedule"}]},
            status={
                "capacity": {"cpu": "2", "memory": "1024Mi", "pods": 110},
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            },
        ),
    ),
}


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in GOOD.items()])
async def test_a_good_object_is_stored_field_by_field_as_by_a_real_api_server(
    row: tuple[str, Object], real: Client
) -> None:
    resource, body = row

    assert ours(SERVED[resource], body) == await theirs(real, "POST", PATHS[resource], body)


SOURCES = [
    {"name": "A", "value": "x", "valueFrom": FIELD},
    {"name": "B", "valueFrom": {}},
    {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "foo"}}},
    {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "", "key": ""}}},
    {"name": "E", "valueFrom": {**FIELD, "secretKeyRef": {"name": "a", "key": "b"}}},
    {"name": "F", "valueFrom": {"resourceFieldRef": {"resource": "foo"}}},
]
BAD_PORTS = [
    {"containerPort": 0},
    {"containerPort": 70000},
    {"containerPort": 1, "protocol": "X"},
    {"containerPort": 1, "name": "UPPER"},
    {"containerPort": 1, "name": "a" * 16},
    {"containerPort": 1, "name": "a--b"},
    {"containerPort": 1, "name": "-1-"},
    {"containerPort": 2, "name": "a"},
    {"containerPort": 3, "name": "a"},
]
BAD_VOLUMES = [
    {"name": "", "emptyDir": {}},
    {"name": "A", "emptyDir": {}},
    {"name": "v", "emptyDir": {}, "hostPath": {"path": "/a"}},
    {"name": "h", "hostPath": {"path": ""}},
    {"name": "i", "hostPath": {"path": "/x", "type": "Foo"}},
    {"name": "j", "hostPath": {"path": "/x/../y"}},
    {"name": "m", "configMap": {"name": ""}},
    {"name": "s", "secret": {"secretName": ""}},
    {"name": "n", "configMap": {"name": "a", "items": [{"key": "", "path": "/x"}], "defaultMode": 9999}},
    {"name": "p", "persistentVolumeClaim": {"claimName": ""}},
    {"name": "q", "emptyDir": {}},
    {"name": "q", "emptyDir": {}},
]
BAD_MOUNTS = [
    {"name": "w", "mountPath": "/a"},
    {"name": "v", "mountPath": ""},
    {"name": "v", "mountPath": "/a"},
    {"name": "", "mountPath": "/b"},
    {"name": "v", "mountPath": "/s", "subPath": "../x"},
    {"name": "v", "mountPath": "/t", "subPath": "/x"},
]
BAD_PROBES = {
    "livenessProbe": {},
    "readinessProbe": {"httpGet": {"port": 0}, "exec": {"command": ["x"]}},
    "startupProbe": {"tcpSocket": {"port": "!!"}, "periodSeconds": -1},
}
BAD_TOLERATIONS = [
    {"operator": "Foo"},
    {"operator": "Equal"},
    {"key": "a", "effect": "Foo"},
    {"key": "a", "operator": "Exists", "value": "x"},
    {"key": "a b"},
]
BAD_INITS = [
    {"name": "c", "image": "x"},
    {"name": "i", "image": "x", "livenessProbe": {"exec": {"command": ["x"]}}, "lifecycle": {"preStop": {"sleep": {}}}},
    {"name": "s", "image": "x", "restartPolicy": "Foo"},
]

BAD: dict[str, tuple[str, Object]] = {
    "command-is-a-string": ("pods", a_pod(container={"command": "x"})),
    "argument-is-a-number": ("pods", a_pod(container={"args": ["--port", 80]})),
    "spec-is-a-list": ("pods", named(spec=[])),
    "container-is-a-string": ("pods", named(spec={"containers": ["x"]})),
    "quantity-is-a-word": ("pods", a_pod(container={"resources": {"limits": {"cpu": "plenty"}}})),
    "seconds-are-a-string": ("pods", a_pod(terminationGracePeriodSeconds="3")),
    "seconds-are-a-fraction": ("pods", a_pod(terminationGracePeriodSeconds=1.5)),
    "flag-is-a-string": ("pods", a_pod(hostNetwork="yes")),
    "env-value-is-a-number": ("pods", a_pod(container={"env": [{"name": "A", "value": 1}]})),
    "env-is-a-map": ("pods", a_pod(container={"env": {"A": "1"}})),
    "no-spec": ("pods", named()),
    "no-containers": ("pods", named(spec={"containers": []})),
    "name-with-an-underscore": ("pods", a_pod(metadata={"name": "a_b"})),
    "no-image": ("pods", named(spec={"containers": [{"name": "c"}]})),
    "image-with-spaces": ("pods", a_pod(container={"image": " x "})),
    "no-container-name": ("pods", named(spec={"containers": [{"image": "x"}]})),
    "container-name-in-upper-case": ("pods", a_pod(container={"name": "A"})),
    "container-name-too-long": ("pods", a_pod(container={"name": "a" * 64})),
    "two-containers-of-one-name": ("pods", named(spec={"containers": [a_container(), a_container()]})),
    "unknown-words": ("pods", a_pod(restartPolicy="Sometimes", dnsPolicy="x", container={"imagePullPolicy": "x"})),
    "unknown-message-policy": ("pods", a_pod(container={"terminationMessagePolicy": "x"})),
    "ports": ("pods", a_pod(container={"ports": BAD_PORTS})),
    "host-ports": (
        "pods",
        a_pod(
            container={
                "ports": [{"containerPort": port, "hostPort": host} for port, host in ((1, 9), (2, 9), (3, 70000))]
            }
        ),
    ),
    "host-port-on-the-host-network": (
        "pods",
        a_pod(hostNetwork=True, container={"ports": [{"containerPort": 80, "hostPort": 81}]}),
    ),
    "env-names": ("pods", a_pod(container={"env": [{"name": ""}, {"name": "a=b"}, {"name": "ä"}]})),
    "env-sources": ("pods", a_pod(container={"env": SOURCES})),
    "env-from": (
        "pods",
        a_pod(container={"envFrom": [{}, {"prefix": "=", "configMapRef": {"name": "a"}}, {"secretRef": {"name": ""}}]}),
    ),
    "volumes": ("pods", a_pod(volumes=BAD_VOLUMES)),
    "mounts": ("pods", a_pod(volumes=[{"name": "v"}], container={"volumeMounts": BAD_MOUNTS})),
    "requests-above-limits": (
        "pods",
        a_pod(container={"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}),
    ),
    "resources": (
        "pods",
        a_pod(container={"resources": {"limits": {"nvidia.com/gpu": "1m", "foo": "1", "cpu": "-1"}}}),
    ),
    "gpu-without-a-limit": ("pods", a_pod(container={"resources": {"requests": {"nvidia.com/gpu": "1"}}})),
    "probes": ("pods", a_pod(container=BAD_PROBES)),
    "probe-without-a-command": ("pods", a_pod(container={"livenessProbe": {"exec": {}, "successThreshold": 2}})),
    "lifecycle": ("pods", a_pod(container={"lifecycle": {"preStop": {}, "postStart": {"exec": {}}}})),
    "no-time-at-all": ("pods", a_pod(activeDeadlineSeconds=0)),
    "node-selector": ("pods", a_pod(nodeSelector={"a b": "c d"})),
    "tolerations": ("pods", a_pod(tolerations=BAD_TOLERATIONS)),
    "unknown-priority-class": ("pods", a_pod(priorityClassName="huge")),
    "priority-as-a-number": ("pods", a_pod(priority=5)),
    "host-names": ("pods", a_pod(hostname="A.b", subdomain="X.y", nodeName="A b")),
    "host-aliases": ("pods", a_pod(hostAliases=[{"ip": "x", "hostnames": ["A_"]}])),
    "init-containers": ("pods", a_pod(initContainers=BAD_INITS)),
    "labels": ("pods", a_pod(metadata={"labels": {"a b": "c", "x": "c d"}, "annotations": {"a b": "c"}})),
    "service-port-0": ("services", a_service({"port": 0})),
    "service-port-words": ("services", a_service({"port": 80, "protocol": "X", "targetPort": "!!"})),
    "service-ports-without-names": ("services", a_service({"port": 80}, {"port": 81})),
    "service-ports": (
        "services",
        a_service(*({"port": port, "name": name} for port, name in ((80, "a"), (80, "b"), (81, "A_"), (82, "a")))),
    ),
    "service-type": ("services", a_service(type="Foo")),
    "service-without-ports": ("services", named(spec={})),
    "service-without-an-external-name": ("services", named(spec={"type": "ExternalName"})),
    "service-selector": ("services", a_service(selector={"a b": "c"})),
    "service-address": ("services", a_service(clusterIP="x")),
    "service-affinity": ("services", a_service(sessionAffinity="X")),
    "service-node-port-of-a-cluster-ip": ("services", a_service({"port": 80, "nodePort": 30080})),
    "service-name-with-a-dot": ("services", {**a_service(), "metadata": {"name": "a.b"}}),
    "config-key": ("configmaps", named(data={"a b": "c", "..": "d"})),
    "config-key-twice": ("configmaps", named(data={"a": "c"}, binaryData={"a": "eA=="})),
    "config-value-is-a-number": ("configmaps", named(data={"a": 1})),
    "config-bytes": ("configmaps", named(binaryData={"a": "!!"})),
    "secret-bytes": ("secrets", named(data={"a": "eA=!"})),
    "secret-without-its-keys": ("secrets", named(type="kubernetes.io/tls")),
    "event-of-another-namespace": ("events", named(involvedObject={"namespace": "other", "name": "x"})),
    "lease-numbers": ("leases.coordination.k8s.io", named(spec={"leaseDurationSeconds": 0, "leaseTransitions": -1})),
    "lease-time": ("leases.coordination.k8s.io", named(spec={"renewTime": "x"})),
    "namespace-with-a-dot": ("namespaces", {"metadata": {"name": "a.b"}}),
    "namespace-in-upper-case": ("namespaces", {"metadata": {"name": "A"}}),
}


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in BAD.items()])
async def test_a_bad_object_is_refused_for_the_same_causes(row: tuple[str, Object], real: Client) -> None:
    resource, body = row

    found = ours(SERVED[resource], body)

    assert found.refusal
    assert found == await theirs(real, "POST", PATHS[resource], body)


def _with_spec(**changes: Any) -> Any:
    return lambda pod: pod["spec"].update(changes)


def _with_container(**changes: Any) -> Any:
    return lambda pod: pod["spec"]["containers"][0].update(changes)


CHANGES: dict[str, Any] = {
    "command": _with_container(command=["x"]),
    "image": _with_container(image="new"),
    "restart-policy": _with_spec(restartPolicy="Never"),
    "node": _with_spec(nodeName="n"),
    "shorter-deadline": _with_spec(activeDeadlineSeconds=5),
    "longer-deadline": _with_spec(activeDeadlineSeconds=50),
    "grace-period": _with_spec(terminationGracePeriodSeconds=1),
    "another-container": lambda pod: pod["spec"]["containers"].append({"name": "d", "image": "x"}),
    "another-toleration": lambda pod: pod["spec"]["tolerations"].append({"key": "x", "operator": "Exists"}),
    "label": lambda pod: pod["metadata"].update(labels={"x": "y"}),
    "status": lambda pod: pod.update(status={"phase": "Running"}),
}


@pytest.mark.parametrize("change", [pytest.param(change, id=name) for name, change in CHANGES.items()])
async def test_only_little_of_a_pod_can_be_changed(change: Any, real: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    old = await real.create(path, a_pod(activeDeadlineSeconds=10))
    new = copy.deepcopy(old)
    change(new)

    mine, other = ours(SERVED["pods"], new, old), await theirs(real, "PUT", f"{path}/x", new)

    # The real one appends a difference of its internal types.
    shortened = tuple((field, reason, message.partition("\n")[0]) for field, reason, message in other.causes)
    assert mine == other._replace(causes=shortened)


def test_a_status_keeps_the_class_of_service_and_knows_both_forms_of_an_address() -> None:
    served = SERVED["pods"]
    old = a_pod() | {"status": {"phase": "Pending", "qosClass": "Guaranteed"}}
    new = a_pod(restartPolicy="Never") | {"status": {"phase": "Running", "podIP": "127.0.0.1"}}

    builtin.prepare(served, new, old, "status")

    assert new["status"] == {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
    }
    assert new["spec"] == old["spec"]


def test_a_service_keeps_its_address_and_node_ports() -> None:
    served = SERVED["services"]
    old = a_service(type="NodePort")
    builtin.default(served, old)
    builtin.prepare(served, old, None, "")
    new = a_service(type="NodePort")
    builtin.default(served, new)

    builtin.prepare(served, new, old, "")

    assert new["spec"] == old["spec"]
    assert builtin.errors(served, new, old) == []


def test_a_service_may_not_move() -> None:
    served = SERVED["services"]
    old, new = a_service(clusterIP="10.96.0.5"), a_service(clusterIP="10.96.0.6")
    for each in (old, new):
        builtin.default(served, each)
        builtin.prepare(served, each, None, "")

    assert [each.field for each in builtin.errors(served, new, old)] == ["spec.clusterIPs[0]"]


def test_what_is_immutable_stays() -> None:
    config = named(data={"a": "b"}, immutable=True)
    secret = named(type="Opaque")

    changed = builtin.errors(SERVED["configmaps"], {**config, "data": {"a": "c"}}, config)
    retyped = builtin.errors(SERVED["secrets"], {**secret, "type": "foo"}, secret)

    assert [str(each) for each in changed] == ["data: Forbidden: field is immutable when `immutable` is set"]
    assert [str(each) for each in retyped] == ['type: Invalid value: "foo": field is immutable']
