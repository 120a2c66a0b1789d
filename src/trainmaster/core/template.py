"""Pod templates: reads the few fields that we use, and builds bodies around the others.

A template stays the dict that the user wrote, so unknown fields survive. Only the levels that change are copied.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import msgspec

from trainmaster.core.errors import located
from trainmaster.core.ids import JOB, POD, SERVICE, Resource
from trainmaster.core.plan import Body

MANAGED_BY = {"app.kubernetes.io/managed-by": "trainmaster"}
"""On every child: one watch with this selector covers the children of all kinds."""
LABELS = {"app.kubernetes.io/managed-by": "``trainmaster``; also on services."}
"""Of all pods, with descriptions for users, as in ``kinds/<kind>/labels.py``."""

MAX_OBJECT = 3 * 512 * 1024
"""Bytes: etcd's default limit for an object."""

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PortPart(msgspec.Struct, rename="camel"):
    container_port: Port
    """The number of the port. Where replicas share a network, the operator may choose another one."""
    name: str = ""
    """The name of the port."""


class EnvPart(msgspec.Struct):
    name: str
    """The name of the variable. If the operator sets a variable of this name, its value counts."""


class ContainerPart(msgspec.Struct):
    name: str
    """The name of the container. It decides whether the container trains or is a side-car."""
    ports: list[PortPart] | None = None
    """The ports of the container, as in a Pod."""
    env: list[EnvPart] | None = None
    """The variables of the container. Those of the operator stand before them, so that $(NAME) can refer to these."""


class VolumePart(msgspec.Struct):
    name: str
    """The name of the volume."""


class PodSpecPart(msgspec.Struct, rename="camel"):
    containers: Annotated[list[ContainerPart], msgspec.Meta(min_length=1)]
    """The containers of the pod, as in a Pod."""
    init_containers: list[ContainerPart] | None = None
    """Containers that run before the others, as in a Pod."""
    host_network: bool | None = None
    """True: the pod has the network of its node. The operator may choose other ports then."""
    volumes: list[VolumePart] | None = None
    """The volumes of the pod, as in a Pod."""


class MetaPart(msgspec.Struct):
    labels: dict[str, str] | None = None
    """Labels of the pods. The operator adds its own."""
    annotations: dict[str, str] | None = None
    """Annotations of the pods."""


class TemplatePart(msgspec.Struct):
    """The fields of a PodTemplateSpec that we read; also their schema in the CRDs."""

    spec: PodSpecPart
    """The spec of the pods. All fields of a PodSpec are kept; kubectl explain pod.spec describes them."""
    metadata: MetaPart | None = None
    """The metadata of the pods: labels, annotations and finalizers are kept."""


def errors(template: Mapping[str, Any], path: str) -> list[str]:
    """Errors in the fields that we use; the API server validates the others."""
    try:
        read(template)
    except msgspec.ValidationError as error:
        return [located(error, path)]
    return []


def is_on_host(template: Mapping[str, Any]) -> bool:
    """True if its pods use the host network."""
    return bool(template["spec"].get("hostNetwork"))


def container_names(template: Mapping[str, Any]) -> frozenset[str]:
    """The containers of its pods, init containers excepted; none if the template cannot be read."""
    try:
        return frozenset(container.name for container in read(template).spec.containers)
    except msgspec.ValidationError:
        return frozenset()


def read(template: Mapping[str, Any]) -> TemplatePart:
    """Raises ``msgspec.ValidationError`` if a field that we use has the wrong type."""
    return msgspec.convert(template, TemplatePart)


class Owner(msgspec.Struct, frozen=True):
    """The job in the owner references of its children."""

    resource: Resource
    namespace: str
    name: str
    uid: str

    def reference(self, *, blocks: bool) -> Body:
        reference: Body = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
        }
        return reference | {"blockOwnerDeletion": True} if blocks else reference


Env = Mapping[str, Body]
"""Variables by name, as the entries of a container's ``env``. Containers and pods share these entries."""


def env_of(values: Mapping[str, str]) -> dict[str, Body]:
    return {name: {"name": name, "value": value} for name, value in values.items()}


def with_env(container: Mapping[str, Any], env: Env) -> Body:
    """The container with ``env`` before the user's own variables; ours override the same name.

    They are first because Kubernetes expands ``$(NAME)`` only for variables that are defined earlier.
    """
    if not env:
        return dict(container)
    kept = [entry for entry in container.get("env") or () if entry["name"] not in env]
    return {**container, "env": [*env.values(), *kept]}


def size_errors(path: str, template: Mapping[str, Any], env: int) -> list[str]:
    """The error if a pod is too large: its template and the ``env`` bytes of variables that its containers get."""
    size = len(msgspec.json.encode(with_output_kept(template))) + env
    if size <= MAX_OBJECT:
        return []
    room = f"an object may have {MAX_OBJECT // 1024} KiB"
    how = "lower replicas, publish fewer ports, or use fewer containers"
    return [f"{path}: a pod with the variables of its containers needs {size // 1024} KiB, and {room}; {how}"]


_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def with_ports(
    container: Mapping[str, Any], ports: Mapping[str, int], is_ours: Callable[[str], bool], *, on_host: bool
) -> Body:
    """The container with the numbers of ``ports``, by name. Probes that refer to the old numbers follow."""
    moved = dict(container)
    if container.get("ports"):
        moved["ports"] = [
            _with_number(port, ports, on_host=on_host) if is_ours(port.get("name") or "") else port
            for port in container["ports"]
        ]
    for probe in _PROBES:
        if isinstance(definition := container.get(probe), dict):
            moved[probe] = {way: _with_probed(target, ports) for way, target in definition.items()}
    return moved


def _with_number(port: Mapping[str, Any], ports: Mapping[str, int], *, on_host: bool) -> Body:
    declared = port["containerPort"]
    number = ports.get(str(declared), declared)
    # On the host network the API server requires both to be equal.
    return {**port, "containerPort": number} | ({"hostPort": number} if on_host else {})


def _with_probed(target: Any, ports: Mapping[str, int]) -> Any:
    if not isinstance(target, dict) or "port" not in target:
        return target
    return {**target, "port": ports.get(str(target["port"]), target["port"])}


def resolve_on_host(spec: Body) -> None:
    """Lets a pod on the host network resolve the DNS names of services."""
    if spec.get("hostNetwork") and not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"


def pod_body(
    template: Mapping[str, Any],
    *,
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    owner: Body,
    spec: Body,
) -> Body:
    """A pod with the template's metadata, our labels over it, and this spec."""
    original = template.get("metadata") or {}
    metadata: Body = {
        "name": name,
        "namespace": namespace,
        "labels": {**(original.get("labels") or {}), **labels, **MANAGED_BY},
        "ownerReferences": [owner],
    }
    for copied in ("annotations", "finalizers"):
        if original.get(copied):
            metadata[copied] = original[copied]
    return {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": spec}


def with_output_kept(body: Mapping[str, Any]) -> Body:
    """A pod, a template of one, or a batch Job. Where the template does not say otherwise, the kubelet copies the last
    lines of a container that fails into the pod's status: they are known before the pod is deleted, without the right
    to read logs."""
    spec = body["spec"]
    if body.get("kind") == JOB.kind:
        return {**body, "spec": {**spec, "template": with_output_kept(spec["template"])}}
    kept = {
        field: [{"terminationMessagePolicy": "FallbackToLogsOnError", **container} for container in spec[field]]
        for field in ("initContainers", "containers")
        if spec.get(field)
    }
    return {**body, "spec": {**spec, **kept}}


def headless_service_body(
    *,
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    owner: Body,
    ports: Iterable[tuple[str, int]],
) -> Body:
    """A service whose DNS name is the pod's address, also before the pod is ready: peers must find each
    other to become ready."""
    spec: Body = {"clusterIP": "None", "selector": dict(selector), "publishNotReadyAddresses": True}
    if entries := [{"name": port_name, "port": port} for port_name, port in ports]:
        spec["ports"] = entries
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, **MANAGED_BY},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
