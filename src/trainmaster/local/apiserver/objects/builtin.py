"""The built-in kinds: what the API server makes of an object before it stores it, and what it refuses.

``default``, ``prepare``, ``errors``, in this order, on what ``shape.read`` has read. Each kind has a row in the table
at the end.
"""

import base64
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trainmaster.local.apiserver.controllers import job_default, job_error
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects import metadata, pod_default, pod_error, service
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.objects.word import config_key_complaints, label_complaints

Object = dict[str, Any]

NAME_LABEL = "kubernetes.io/metadata.name"
NAMESPACE_FINALIZER = "kubernetes"


class Kind(NamedTuple):
    """What is special about a built-in kind. ``prepare`` gets the object, the old one or None, and the subresource."""

    default: Callable[[Object], None] | None = None
    prepare: Callable[[Object, Object | None, str], None] | None = None
    errors: Callable[[Object, Object | None], list[Cause]] | None = None


def _kind(served: Served) -> Kind:
    return _KINDS.get(str(served.resource), Kind())


def default(served: Served, obj: Object) -> None:
    """Fill in what was left out."""
    kind = _kind(served)
    if kind.default:
        kind.default(obj)


def prepare(served: Served, obj: Object, old: Object | None, subresource: str) -> None:
    """Overrule what a client may not decide: on which side of the status a write counts, and what the server gives."""
    kind = _kind(served)
    if old is not None and subresource:
        _keep_all_but(obj, old, "spec" if subresource == "finalize" else subresource)
    elif old is not None and "status" in served.subresources:
        _keep(obj, old, "status")
    if kind.prepare:
        kind.prepare(obj, old, subresource)


def _keep(obj: Object, old: Object, field: str) -> None:
    obj.pop(field, None)
    if field in old:
        obj[field] = copy.deepcopy(old[field])


def _keep_all_but(obj: Object, old: Object, field: str) -> None:
    """A write to a subresource changes its field and the metadata."""
    for name in {*obj, *old} - {field, "metadata", "kind", "apiVersion"}:
        _keep(obj, old, name)


def refusal(served: Served, obj: Object) -> str:
    """Why admission forbids an object to be created; empty if it does not."""
    if served.resource.kind != "Pod":
        return ""
    spec = obj.get("spec", {})
    name = spec.get("priorityClassName", "")
    if name not in pod_default.PRIORITIES:
        return f"no PriorityClass with name {name} was found"
    wanted = pod_default.PRIORITIES[name]
    if spec.get("priority", wanted) != wanted:
        return (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {wanted} from the given PriorityClass name"
        )
    return ""


def errors(served: Served, obj: Object, old: Object | None) -> list[Cause]:
    """All that is wrong with an object, its metadata included."""
    kind = _kind(served)
    found = [*_metadata_errors(served, obj["metadata"])]
    if kind.errors:
        found += kind.errors(obj, old)
    return found


def _metadata_errors(served: Served, meta: Object) -> Iterator[Cause]:
    """Names of some kinds become labels of DNS names: they are held to more than others."""
    is_label = served.resource.plural in _LABEL_NAMES
    for each in metadata.errors(meta):
        is_name = each.field in ("metadata.name", "metadata.generateName") and each.reason == "FieldValueInvalid"
        if not (is_label and is_name):
            yield each
    if is_label and meta.get("name"):
        yield from (cause.invalid("metadata.name", meta["name"], says) for says in _label_name(meta["name"]))


_LABEL_NAMES = frozenset({"services", "namespaces"})


def _label_name(name: str) -> list[str]:
    return ["must not contain dots"] if "." in name else label_complaints(name)


# -- pods ------------------------------------------------------------------------------------------------------


def _prepare_pod(pod: Object, old: Object | None, subresource: str) -> None:
    if old is None:
        pod_default.admit(pod)
        pod["status"] = pod_default.first_status(pod)
        pod["metadata"]["generation"] = 1
    elif subresource == "status":
        status = pod.setdefault("status", {})
        status["qosClass"] = old.get("status", {}).get("qosClass", "BestEffort")
        _sync_addresses(status, "podIP", "podIPs")
        _sync_addresses(status, "hostIP", "hostIPs")
    else:
        # An update that leaves out what admission added gets it again.
        said = pod["spec"].get("priority")
        pod_default.admit(pod)
        if said is not None:
            pod["spec"]["priority"] = said
        if pod["spec"] != old["spec"]:
            pod["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _sync_addresses(status: Object, one: str, many: str) -> None:
    if status.get(one) and not status.get(many):
        status[many] = [{"ip": status[one]}]
    elif status.get(many) and not status.get(one):
        status[one] = status[many][0].get("ip", "")


def _pod_errors(pod: Object, old: Object | None) -> list[Cause]:
    if old is None:
        return pod_error.errors(pod)
    return pod_error.errors(pod) if pod["spec"] == old["spec"] else pod_error.update_errors(pod, old)


# -- the others ------------------------------------------------------------------------------------------------


def _prepare_service(obj: Object, old: Object | None, subresource: str) -> None:
    if subresource:
        return
    service.allocate(obj, old)
    if old is None:
        obj["status"] = {"loadBalancer": {}}


def _prepare_job(job: Object, old: Object | None, subresource: str) -> None:
    if old is None:
        job["status"] = {}
        job["metadata"]["generation"] = 1
        job_default.select_own_pods(job)
    elif not subresource and job["spec"] != old["spec"]:
        job["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    job_default.label_as_template(job)


def _default_secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    for key, text in (plain or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _data_errors(obj: Object, old: Object | None) -> list[Cause]:
    found = []
    for key in sorted({*obj.get("data", ()), *obj.get("binaryData", ())}):
        field = f"{'data' if key in obj.get('data', ()) else 'binaryData'}[{key}]"
        found += [cause.invalid(field, key, each) for each in config_key_complaints(key)]
        if key in obj.get("data", ()) and key in obj.get("binaryData", ()):
            found.append(cause.invalid(field, key, "duplicate of key present in binaryData"))
    if old is not None and old.get("immutable"):
        says = "field is immutable when `immutable` is set"
        found += [
            cause.forbidden(field, says)
            for field in ("immutable", "data", "binaryData")
            if obj.get(field) != old.get(field)
        ]
    return found


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _secret_errors(secret: Object, old: Object | None) -> list[Cause]:
    found = _data_errors(secret, old)
    for key in _SECRET_KEYS.get(secret.get("type", ""), ()):
        if key not in secret.get("data", ()):
            found.append(cause.required(f"data[{key}]"))
    if old is not None and secret.get("type") != old.get("type"):
        found.append(cause.invalid("type", secret.get("type"), "field is immutable"))
    return found


def _prepare_namespace(namespace: Object, old: Object | None, _: str) -> None:
    meta = namespace["metadata"]
    if meta.get("name"):
        meta.setdefault("labels", {})[NAME_LABEL] = meta["name"]
    if old is None:
        finalizers = namespace.setdefault("spec", {}).setdefault("finalizers", [])
        if NAMESPACE_FINALIZER not in finalizers:
            finalizers.append(NAMESPACE_FINALIZER)
        namespace["status"] = {"phase": "Active"}


def _default_node(node: Object) -> None:
    status = node.setdefault("status", {})
    if status.get("capacity"):
        status["allocatable"] = {**status["capacity"], **status.get("allocatable", {})}


def _event_errors(event: Object, _: Object | None) -> list[Cause]:
    about = event.get("involvedObject", {}).get("namespace", "")
    own = event["metadata"].get("namespace", "")
    if about != own and not (about == "" and own == "default"):
        return [cause.invalid("involvedObject.namespace", about, "does not match event.namespace")]
    return []


def _lease_errors(lease: Object, _: Object | None) -> list[Cause]:
    spec = lease.get("spec", {})
    found = []
    if spec.get("leaseDurationSeconds", 1) <= 0:
        seconds = spec["leaseDurationSeconds"]
        found.append(cause.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if spec.get("leaseTransitions", 0) < 0:
        says = "must be greater than or equal to 0"
        found.append(cause.invalid("spec.leaseTransitions", spec["leaseTransitions"], says))
    return found


_KINDS: dict[str, Kind] = {
    "pods": Kind(pod_default.default, _prepare_pod, _pod_errors),
    "services": Kind(service.default, _prepare_service, service.errors),
    "configmaps": Kind(errors=_data_errors),
    "secrets": Kind(_default_secret, errors=_secret_errors),
    "namespaces": Kind(prepare=_prepare_namespace),
    "nodes": Kind(_default_node),
    "events": Kind(errors=_event_errors),
    "leases.coordination.k8s.io": Kind(errors=_lease_errors),
    "jobs.batch": Kind(job_default.default, _prepare_job, job_error.errors),
}
