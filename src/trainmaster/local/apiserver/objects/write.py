"""create, update and patch: how a body becomes an object.

The order is Kubernetes': read and compare with the address, prune and fill in, mutate (admission), prepare (what the
client may not decide), validate, review (admission), store.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from trainmaster.core.ids import NAMESPACE, Resource
from trainmaster.local.apiserver.http.answer import whole_object
from trainmaster.local.apiserver.http.option import version_number
from trainmaster.local.apiserver.http.status import (
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_options,
    not_found,
    unfit_patch,
)
from trainmaster.local.apiserver.objects import admit as content
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects import metadata, scale
from trainmaster.local.apiserver.objects.catalog import DEFINITION
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.store.store import Place, Stored

Body = dict[str, Any]

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST_PREFIX = 63 - _SUFFIX
_NAME_TRIES = 8
# Kubernetes lets a client overwrite these without saying which version it has seen …
_CONDITIONAL = frozenset({"leases.coordination.k8s.io", str(DEFINITION)})
# … and makes these when an update finds none.
_UPSERTED = frozenset({"services", "events", "leases.coordination.k8s.io"})
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


class WriteOptions(NamedTuple):
    dry_run: bool = False
    validation: str = ""


class Outcome(NamedTuple):
    """What a write answers."""

    stored: Stored
    code: int = 200
    warnings: tuple[str, ...] = ()


def write_options(kind: str, query: Mapping[str, str]) -> WriteOptions:
    validation, dry_run = query.get("fieldValidation", ""), query.get("dryRun", "")
    causes = []
    if dry_run not in ("", "All"):
        causes.append(cause.unsupported_value("dryRun", [dry_run], ("All",)))
    if validation not in _VALIDATIONS:
        causes.append(cause.unsupported_value("fieldValidation", validation, _VALIDATIONS))
    if causes:
        raise invalid_options(kind, causes)
    return WriteOptions(dry_run == "All", validation)


# -- create ------------------------------------------------------------------------------------------------


def create(state: State, target: Target, body: Any, options: WriteOptions) -> Outcome:
    served = target.served
    obj, unknown = content.read(state, served, body)
    warnings = (*content.judge(served, unknown, options.validation), *content.advice(served, obj))
    meta = obj["metadata"]
    _place_in(meta, target)
    if target.name and meta.get("name", target.name) != target.name:
        raise _name_differs(meta["name"], target.name)
    _require_namespace(state, target, meta.get("name", ""))
    if meta.get("resourceVersion") not in (None, "", "0"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    metadata.born(meta, state.timestamp())
    obj = content.mutated(state, served, obj, None)
    meta = obj["metadata"]
    _generate_name(state, target, meta)
    content.prepare(state, served, obj, None, "")
    causes = content.errors(state, served, obj, None)
    if causes:
        raise invalid(served.resource, meta.get("name", ""), causes)
    warnings += content.reviewed(state, served, obj, None)
    place = target.named(meta["name"]).place
    there = state.store.get(place)
    if there is not None:
        raise already_exists(served.resource, meta["name"], is_going="deletionTimestamp" in there.decode()["metadata"])
    return Outcome(_put(state, place, obj, options), 201, warnings)


def _require_namespace(state: State, target: Target, name: str) -> None:
    if not target.served.namespaced:
        return
    found = state.store.get(Place("namespaces", "", target.namespace))
    if found is None:
        raise not_found(NAMESPACE, target.namespace)
    if b'"deletionTimestamp"' in found.body and "deletionTimestamp" in found.decode()["metadata"]:
        why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
        said = f"namespace {target.namespace} is being terminated"
        ended = {"reason": "NamespaceTerminating", "message": said, "field": "metadata.namespace"}
        raise forbidden(target.served.resource, name, why, [ended])


def _generate_name(state: State, target: Target, meta: Body) -> None:
    prefix = meta.get("generateName", "")
    if meta.get("name") or not prefix:
        return
    for _ in range(_NAME_TRIES):
        meta["name"] = prefix[:_LONGEST_PREFIX] + "".join(secrets.choice(_LETTERS) for _ in range(_SUFFIX))
        if state.store.get(target.named(meta["name"]).place) is None:
            return


def _put(state: State, place: Place, obj: Body, options: WriteOptions) -> Stored:
    if not options.dry_run:
        return state.store.put(place, obj)
    shown = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    return Stored(place, state.store.version, msgspec.json.encode(shown))


# -- update and patch --------------------------------------------------------------------------------------


def update(state: State, target: Target, body: Any, options: WriteOptions) -> Outcome:
    """Replace an object, or the part of it that the subresource is."""
    served = target.served
    if target.subresource == "scale":
        return _rescale(state, target, lambda _: body, options)
    obj, _ = content.read(state, served, body)
    name = obj["metadata"].get("name", "")
    if not name:
        raise _nameless(target)
    if name != target.name:
        raise _name_differs(name, target.name)
    stored = state.store.get(target.place)
    if stored is None:
        if str(served.resource) in _UPSERTED and not target.subresource and not obj["metadata"].get("uid"):
            return create(state, target, body, options)
        raise not_found(served.resource, target.name)
    uid = obj["metadata"].get("uid")
    actual = stored.decode()["metadata"]["uid"]
    if uid and uid != actual:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
        raise conflict(served.resource, target.name, why)
    return _replace(state, target, stored, body, options, is_patch=False)


def patch(state: State, target: Target, change: Callable[[Body], Any], options: WriteOptions) -> Outcome:
    """Change an object by what ``change`` makes of it."""
    if target.subresource == "scale":
        return _rescale(state, target, change, options)
    stored = state.store.get(target.place)
    if stored is None:
        raise not_found(target.served.resource, target.name)
    return _replace(state, target, stored, change(whole_object(target.served, stored)), options, is_patch=True)


def _rescale(state: State, target: Target, change: Callable[[Body], Any], options: WriteOptions) -> Outcome:
    served = target.served
    whole = Target(served, target.namespace, target.name)
    stored = state.store.get(target.place)
    if stored is None:
        raise not_found(served.resource, target.name)
    old = whole_object(served, stored)
    wanted = change(scale.read(served, old))
    if not isinstance(wanted, dict):
        raise bad_request("the object provided is unrecognized (must be of type Scale): it is no object")
    try:
        wanted_meta = metadata.normal(wanted.get("metadata"))
    except ValueError as error:
        raise content.unreadable(served, str(error)) from None
    if not isinstance(wanted.get("spec") or {}, dict):
        raise content.unreadable(served, "spec: it is no object")
    causes = scale.errors(wanted)
    if causes:
        raise invalid(Resource("autoscaling", "v1", "scales", "Scale"), target.name, causes)
    new = scale.write(served, old, wanted)
    new["metadata"] = {**old["metadata"], "resourceVersion": wanted_meta.get("resourceVersion", str(stored.version))}
    outcome = _replace(state, whole, stored, new, options, is_patch=True)
    body = scale.read(served, whole_object(served, outcome.stored))
    return Outcome(Stored(stored.place, outcome.stored.version, msgspec.json.encode(body)), 200, outcome.warnings)


def _replace(
    state: State, target: Target, stored: Stored, body: Any, options: WriteOptions, *, is_patch: bool
) -> Outcome:
    served = target.served
    try:
        obj, unknown = content.read(state, served, body)
        warnings = (*content.judge(served, unknown, options.validation), *content.advice(served, obj))
    except Refusal as refusal:
        raise unfit_patch(str(refusal)) if is_patch and refusal.code == 400 else refusal from None
    old = whole_object(served, stored)
    meta = obj["metadata"]
    if not meta.get("name"):
        raise _nameless(target)
    _check_version(served, target.name, meta, stored)
    if meta["name"] != target.name:
        raise _name_differs(meta["name"], target.name)
    _place_in(meta, target)
    metadata.carry(meta, old["metadata"])
    if not target.subresource:
        obj = content.mutated(state, served, obj, old)
    content.prepare(state, served, obj, old, target.subresource)
    causes = content.errors(state, served, obj, old)
    if causes:
        raise invalid(served.resource, target.name, causes)
    if not target.subresource:
        warnings += content.reviewed(state, served, obj, old)
    if _is_finished(served, obj, old):
        return Outcome(_finish(state, stored, obj, options), 200, warnings)
    if content.encoded(obj) == content.encoded(old):
        return Outcome(stored, 200, warnings)
    return Outcome(_put(state, stored.place, obj, options), 200, warnings)


def _check_version(served: Served, name: str, meta: Body, stored: Stored) -> None:
    seen = version_number(meta.get("resourceVersion", ""), "metadata.")
    if seen == stored.version:
        return
    if seen:
        raise conflict(served.resource, name)
    if served.definition is not None or str(served.resource) in _CONDITIONAL:
        wrong = cause.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(served.resource, name, [wrong], kind=served.resource.plural)


def _is_finished(served: Served, obj: Body, old: Body) -> bool:
    """The last finalizer of an object that is being deleted went: now it goes."""
    was = old["metadata"]
    if "deletionTimestamp" not in was or obj["metadata"].get("finalizers"):
        return False
    if served.resource == NAMESPACE and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not was.get("deletionGracePeriodSeconds")


def _finish(state: State, stored: Stored, obj: Body, options: WriteOptions) -> Stored:
    if not options.dry_run:
        state.store.remove(stored.place)
    shown = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    return Stored(stored.place, stored.version, msgspec.json.encode(shown))


def _nameless(target: Target) -> Exception:
    said = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
    return bad_request(said)


def _name_differs(name: str, wanted: str) -> Exception:
    return bad_request(f"the name of the object ({name}) does not match the name on the URL ({wanted})")


def _place_in(meta: Body, target: Target) -> None:
    if meta.get("namespace", target.namespace) != target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if target.namespace:
        meta["namespace"] = target.namespace
