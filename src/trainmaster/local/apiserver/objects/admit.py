"""The content of a write: how a body is read, what is filled in and overruled, and what is wrong with it."""

from typing import Any

import msgspec

from trainmaster.local.apiserver.http.status import Refusal, bad_request, forbidden, invalid
from trainmaster.local.apiserver.objects import builtin, definition, metadata
from trainmaster.local.apiserver.objects import builtin_types as shape
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.admission import Write
from trainmaster.local.apiserver.objects.catalog import DEFINITION
from trainmaster.local.apiserver.objects.delete import FOREGROUND, ORPHAN
from trainmaster.local.apiserver.objects.field_error import Cause, quoted
from trainmaster.local.apiserver.objects.patch import apply_operations
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.objects.state import State

Body = dict[str, Any]


def read(state: State, served: Served, body: Any) -> tuple[Body, list[str]]:
    """A copy of the body as an object of this resource, and the fields that it had to drop."""
    resource = served.resource
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): it is no object")
    _check_kind(served, body)
    obj = {**msgspec.json.decode(msgspec.json.encode(body)), "kind": resource.kind, "apiVersion": resource.api_version}
    unknown = metadata.unknown_fields(body.get("metadata"))
    try:
        if served.definition is None and resource.kind in shape.types():
            unknown = shape.read(resource.kind, obj)
        obj["metadata"] = metadata.normal(obj.get("metadata"))
    except (ValueError, shape.WrongType) as error:
        raise unreadable(served, str(error)) from None
    if served.definition is not None:
        structural = state.catalog.structural(served)
        unknown += structural.prune(obj)
        structural.default(obj)
    return obj, unknown


def _check_kind(served: Served, body: Body) -> None:
    resource = served.resource
    kind, api_version = body.get("kind"), body.get("apiVersion")
    is_custom = served.definition is not None
    if is_custom and (not isinstance(kind, str) or not kind):
        said = f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing"
        raise bad_request(said)
    if is_custom and kind != resource.kind:
        wrong = cause.invalid("kind", kind, f"must be {resource.kind}")
        raise invalid(resource, _name_of(body), [wrong], kind=str(kind))
    if kind not in (None, "", resource.kind):
        raise bad_request(f"{kind} cannot be handled as a {resource.kind}: the kind differs")
    if api_version not in (None, "", resource.api_version) or (is_custom and not api_version):
        raise bad_request(
            f"the API version in the data ({api_version or ''}) does not match the expected API version "
            f"({resource.api_version})"
        )


def _name_of(body: Body) -> str:
    meta = body.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else ""
    return name if isinstance(name, str) else ""


def unreadable(served: Served, why: str) -> Refusal:
    kind, version = served.resource.kind, served.resource.version
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def judge(served: Served, unknown: list[str], validation: str) -> tuple[str, ...]:
    """Warnings of unknown fields, as the client wants them; raises Refusal (400) when it wants to be strict."""
    if not unknown or validation == "Ignore":
        return ()
    said = [f"unknown field {quoted(field)}" for field in unknown]
    if validation == "Strict":
        raise unreadable(served, f"strict decoding error: {', '.join(said)}")
    return tuple(said)


def advice(served: Served, obj: Body) -> list[str]:
    """What is allowed but unwise."""
    if served.definition is None:
        return []
    advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    return [
        f"metadata.finalizers: {quoted(name)}: {advice}"
        for name in obj["metadata"].get("finalizers", [])
        if "/" not in name and name not in (ORPHAN, FOREGROUND)
    ]


def prepare(state: State, served: Served, obj: Body, old: Body | None, subresource: str) -> None:
    """Fill in what was left out and overrule what a client may not decide; ``old`` is None for a new object."""
    if served.definition is not None:
        _prepare_custom(served, obj, old, subresource)
        return
    builtin.default(served, obj)
    why = builtin.refusal(served, obj) if old is None else ""
    if why:
        meta = obj["metadata"]  # admission comes before a name is generated
        raise forbidden(served.resource, meta.get("generateName") or meta.get("name", ""), why)
    builtin.prepare(served, obj, old, subresource)
    if served.resource == DEFINITION:
        definition.prepare(obj, old, subresource, state.timestamp())


def _prepare_custom(served: Served, obj: Body, old: Body | None, subresource: str) -> None:
    has_status = "status" in served.subresources
    if old is None:
        obj["metadata"]["generation"] = 1
        if has_status:
            obj.pop("status", None)
        return
    if subresource == "status":
        status = obj.get("status")
        obj.clear()
        obj.update(old)
        obj.pop("status", None)
        if status is not None:
            obj["status"] = status
        return
    if has_status:
        obj.pop("status", None)
        if "status" in old:
            obj["status"] = old["status"]
    ignored = ("metadata", "status") if has_status else ("metadata",)
    before = {key: value for key, value in old.items() if key not in ignored}
    after = {key: value for key, value in obj.items() if key not in ignored}
    if encoded(before) != encoded(after):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def errors(state: State, served: Served, obj: Body, old: Body | None) -> list[Cause]:
    """All that is wrong with an object, and with the way that led to it."""
    changed = [] if old is None else metadata.update_errors(obj["metadata"], old["metadata"])
    if served.definition is not None:
        found = [*metadata.errors(obj["metadata"], is_custom=True), *changed]
        return state.catalog.structural(served).errors(obj, old, found)
    found = [*changed, *builtin.errors(served, obj, old)]
    if served.resource == DEFINITION:
        found += definition.errors(obj)
    return found


def mutated(state: State, served: Served, obj: Body, old: Body | None) -> Body:
    """The object as admission changes it."""
    if served.definition is None:
        return obj
    operations = state.admission.mutate(Write(served.resource, obj, old))
    return apply_operations(obj, operations) if operations else obj


def reviewed(state: State, served: Served, obj: Body, old: Body | None) -> tuple[str, ...]:
    """The warnings of admission; raises Refusal (422) when it refuses the object."""
    if served.definition is None:
        return ()
    review = state.admission.validate(Write(served.resource, obj, old))
    if review.causes:
        raise invalid(served.resource, obj["metadata"]["name"], review.causes, warnings=review.warnings)
    return tuple(review.warnings)


def encoded(obj: Body) -> bytes:
    return msgspec.json.encode(obj, order="deterministic")
