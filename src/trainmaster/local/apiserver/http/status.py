"""Answers of kind Status: all refusals, with Kubernetes' own messages, and plain success.

Features that are deliberately not supported are refused with a message:

| request | answer |
|---|---|
| new Deployments and other workloads that are not run here | 404 |
| bodies in YAML or CBOR, and in protobuf for other kinds than ``protobuf`` names | 415 |
| answers in nothing but YAML, protobuf or CBOR | 406 |
| pods/attach, proxy, eviction, ephemeralcontainers, resize; services/proxy; nodes/proxy | 501 |
| any other resource or version | 404, and discovery does not list it |
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.core.ids import Resource
from trainmaster.local.apiserver.objects.field_error import Cause

UNSUPPORTED_SUBRESOURCES: Mapping[str, frozenset[str]] = {
    "pods": frozenset({"attach", "proxy", "eviction", "ephemeralcontainers", "resize"}),
    "services": frozenset({"proxy"}),
    "nodes": frozenset({"proxy"}),
    "serviceaccounts": frozenset({"token"}),
}

UNSUPPORTED_WORKLOADS = frozenset(
    {
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
        ("batch", "cronjobs"),
    }
)

INSTEAD = {"attach": "`kubectl logs -f` shows the output of a container, and `kubectl exec` runs a command in it"}
"""What to use for unsupported subresources."""

CHANGED = "the object has been modified; please apply your changes to the latest version and try again"


class Refusal(Exception):
    """A refused request; ``body`` is the Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.warnings = warnings
        self.body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(metadata or {}),
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        if not reason:
            del self.body["reason"]
        if details is not None:
            self.body["details"] = dict(details)


def success(details: Mapping[str, Any] | None = None, *, code: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = dict(details)
    if code:
        body["code"] = code
    return body


def details_of(resource: Resource, name: str, *, kind: str = "") -> dict[str, Any]:
    """Kubernetes uses the plural as ``kind`` here; empty fields are left out."""
    words = {"name": name, "group": resource.group, "kind": kind or resource.plural}
    return {word: value for word, value in words.items() if value}


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def unauthorized() -> Refusal:
    return Refusal(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()) -> Refusal:
    details = details_of(resource, name)
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    return Refusal(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', details)


def not_found(resource: Resource, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{resource} "{name}" not found', details_of(resource, name))


def no_such_path() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", {})


def no_such_workload(group: str, plural: str) -> Refusal:
    message = (
        f"the local cluster does not run {plural}.{group}: it runs pods (kubectl run), Jobs (kubectl create job) and "
        "the jobs of trainmaster; kubectl api-resources lists all kinds"
    )
    return Refusal(404, "NotFound", message, {"group": group, "kind": plural})


def already_exists(resource: Resource, name: str, *, is_going: bool) -> Refusal:
    message = f'{resource} "{name}" already exists'
    if is_going:
        message = f"object is being deleted: {message}"
    return Refusal(409, "AlreadyExists", message, details_of(resource, name))


def conflict(resource: Resource, name: str, why: str = CHANGED, *, kind: str = "") -> Refusal:
    """``kind`` replaces the plural where Kubernetes names the kind instead."""
    what = str(resource) if not kind else f"{kind}.{resource.group}" if resource.group else kind
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    return Refusal(409, "Conflict", message, details_of(resource, name, kind=kind))


def invalid(
    resource: Resource, name: str, causes: Sequence[Cause], *, kind: str = "", warnings: Sequence[str] = ()
) -> Refusal:
    """All errors of one object. Duplicates are removed; several errors are listed in brackets."""
    kind = kind or resource.kind
    what = f"{kind}.{resource.group}" if resource.group else kind
    errors = list(dict.fromkeys(f"{each.field}: {each.message}" if each.field else each.message for each in causes))
    sentence = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    details = details_of(resource, name, kind=kind)
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, **({"field": cause.field} if cause.field else {})}
        for cause in causes
    ]
    message = f'{what} "{name}" is invalid: {sentence}'
    return Refusal(422, "Invalid", message, details, warnings=warnings)


def invalid_options(kind: str, causes: Sequence[Cause]) -> Refusal:
    return invalid(Resource("meta.k8s.io", "v1", kind, kind), "", causes)


def unfit_patch(why: str) -> Refusal:
    """The object that a patch produced cannot be decoded."""
    causes = [{"reason": "FieldValueInvalid", "message": f"Invalid value: {why}", "field": "patch"}]
    return Refusal(422, "Invalid", f' "" is invalid: patch: Invalid value: {why}', {"causes": causes})


def method_unknown() -> Refusal:
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_supported(what: str, instead: str = "") -> Refusal:
    advice = f"; {instead}" if instead else ""
    return Refusal(501, "NotImplemented", f"{what} is not supported by the local cluster{advice}")


def not_acceptable(offered: str) -> Refusal:
    return Refusal(406, "NotAcceptable", f"only the following media types are accepted: {offered}")


def unsupported_media_type(offered: str) -> Refusal:
    message = f"the body of the request was in an unknown format - accepted media types include: {offered}"
    return Refusal(415, "UnsupportedMediaType", message)


def too_large() -> Refusal:
    return Refusal(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


def expired(message: str, metadata: Mapping[str, Any] | None = None) -> Refusal:
    return Refusal(410, "Expired", message, metadata=metadata)


def version_too_large(wanted: int, current: int) -> Refusal:
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return Refusal(504, "Timeout", message, details | {"retryAfterSeconds": 1})


def unavailable(message: str) -> Refusal:
    return Refusal(503, "ServiceUnavailable", message)


def internal(message: str) -> Refusal:
    details = {"causes": [{"message": message}]}
    return Refusal(500, "InternalError", f"Internal error occurred: {message}", details)
