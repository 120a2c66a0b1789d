"""What kube-apiserver fills into a pod: defaults, what admission adds, and the first status."""

from collections.abc import Iterator
from typing import Any

from trainmaster.local.apiserver.objects import quantity

Object = dict[str, Any]

_MODE = 0o644
_SPEC: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_PROBE: Object = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_VOLUME_DEFAULTS: dict[str, Object] = {
    "configMap": {"defaultMode": _MODE},
    "secret": {"defaultMode": _MODE},
    "downwardAPI": {"defaultMode": _MODE},
    "projected": {"defaultMode": _MODE},
    "hostPath": {"type": ""},
}
# Pods stay this long on a node that is lost, unless they say otherwise.
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_LOST_NODE_SECONDS = 300

PRIORITIES = {"": 0, "system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Every priority class that there is."""


def containers(spec: Object) -> Iterator[Object]:
    """Init containers first, as they run."""
    yield from spec.get("initContainers", ())
    yield from spec.get("containers", ())


def default(pod: Object) -> None:
    """Fill in the spec; what is there stays."""
    spec = pod.setdefault("spec", {})
    default_template(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in containers(spec):
        _default_running(container, is_host=bool(spec.get("hostNetwork")))


def default_template(spec: Object) -> None:
    """What is filled into the spec of a pod that is yet to be made, too."""
    for key, value in _SPEC.items():
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    for container in containers(spec):
        _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)
    if "serviceAccountName" in spec:
        spec["serviceAccount"] = spec["serviceAccountName"]


def _default_running(container: Object, *, is_host: bool) -> None:
    """What only counts when there is a pod: what it asks of its node."""
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    for port in container.get("ports", ()):
        if is_host and port.get("containerPort"):
            port.setdefault("hostPort", port["containerPort"])


def _default_container(container: Object) -> None:
    image = container.get("image", "")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if _tag(image) == "latest" else "IfNotPresent")
    container.setdefault("resources", {})
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        _default_reference((variable.get("valueFrom") or {}).get("fieldRef"))
        resource = (variable.get("valueFrom") or {}).get("resourceFieldRef")
        if resource is not None:
            resource.setdefault("divisor", "0")
    for name in _PROBES:
        if name in container:
            _default_probe(container[name])
    for handler in container.get("lifecycle", {}).values():
        if isinstance(handler, dict):
            _default_handler(handler)


def _tag(image: str) -> str:
    if "@" in image:
        return ""
    name, colon, tag = image.rpartition(":")
    return tag if colon and "/" not in tag and name else "latest"


def _default_reference(reference: Object | None) -> None:
    if reference is not None:
        reference.setdefault("apiVersion", "v1")


def _default_probe(probe: Object) -> None:
    for key, value in _PROBE.items():
        if not probe.get(key):
            probe[key] = value
    _default_handler(probe)


def _default_handler(handler: Object) -> None:
    get = handler.get("httpGet")
    if get is not None:
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")


def _default_volume(volume: Object) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for source, defaults in _VOLUME_DEFAULTS.items():
        if source in volume:
            for key, value in defaults.items():
                volume[source].setdefault(key, value)
    files = list(volume.get("downwardAPI", {}).get("items", ()))
    for projection in volume.get("projected", {}).get("sources", ()):
        files += projection.get("downwardAPI", {}).get("items", ())
    for file in files:
        _default_reference(file.get("fieldRef"))


def admit(pod: Object) -> None:
    """What the admission controllers add: a priority, and for how long a lost node is tolerated."""
    spec = pod["spec"]
    spec["priority"] = PRIORITIES.get(spec.get("priorityClassName", ""), 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    for taint in _TAINTS:
        if not any(_tolerates(each, taint) for each in tolerations):
            tolerations.append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _LOST_NODE_SECONDS,
                }
            )


def _tolerates(toleration: Object, taint: str) -> bool:
    is_key = toleration.get("key") == taint or ("key" not in toleration and toleration.get("operator") == "Exists")
    return is_key and toleration.get("effect", "NoExecute") == "NoExecute"


def first_status(pod: Object) -> Object:
    """A pod is born pending; its class of service never changes."""
    return {"phase": "Pending", "qosClass": quality(pod["spec"])}


def quality(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort: what the resources of all containers promise."""
    everyone = list(containers(spec))
    limits = [_compute(each, "limits") for each in everyone]
    requests = [_compute(each, "requests") for each in everyone]
    if not any(limits) and not any(requests):
        return "BestEffort"
    is_bounded = all(set(limit) == {"cpu", "memory"} for limit in limits)
    return "Guaranteed" if is_bounded and limits == requests else "Burstable"


def _compute(container: Object, word: str) -> dict[str, Any]:
    found = container.get("resources", {}).get(word, {})
    amounts = {name: quantity.number(found[name]) for name in ("cpu", "memory") if name in found}
    return {name: amount for name, amount in amounts.items() if amount > 0}
