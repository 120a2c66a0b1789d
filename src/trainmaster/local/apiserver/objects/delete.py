"""delete: at once, after the finalizers, or, for a pod that is on a node, when the node says so."""

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from trainmaster.core.errors import located
from trainmaster.core.ids import NAMESPACE
from trainmaster.local.apiserver.http.option import boolean, integer
from trainmaster.local.apiserver.http.status import bad_request, conflict, forbidden, invalid_options, not_found
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.objects.state import State, Target, timestamp
from trainmaster.local.apiserver.store.store import Stored

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
IMMORTAL = frozenset({"default", "kube-system", "kube-public"})

_POLICIES = ("Foreground", "Background", "Orphan")
_DEFAULT_GRACE = 30
_ENDED = frozenset({"Succeeded", "Failed"})
# Their dependents stay, unless the deletion says otherwise: from the days before Kubernetes collected garbage.
_ORPHANING = frozenset({"jobs.batch"})
# The answer to the deletion of these is what was deleted; of all others, a plain yes.
_RETURNED = frozenset({"pods", "services", "namespaces", "serviceaccounts"})


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    kind: str | None = None
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None

    @property
    def is_dry_run(self) -> bool:
        return bool(self.dry_run)


class Deleted(msgspec.Struct, frozen=True):
    """``stored`` is what the object was last, or is now when it must wait."""

    stored: Stored
    is_gone: bool

    def shows_object(self, served: Served) -> bool:
        return not self.is_gone or str(served.resource) in _RETURNED


def delete_options(body: Any, query: Mapping[str, str]) -> DeleteOptions:
    """The body counts when there is one, else the query. Raises Refusal."""
    options = _of_query(query) if body is None else _of_body(body)
    causes = _causes(options)
    if causes:
        raise invalid_options("DeleteOptions", causes)
    return options


def _of_query(query: Mapping[str, str]) -> DeleteOptions:
    return DeleteOptions(
        grace_period_seconds=integer(query, "gracePeriodSeconds") if query.get("gracePeriodSeconds") else None,
        orphan_dependents=boolean(query, "orphanDependents"),
        propagation_policy=query.get("propagationPolicy"),
        dry_run=[query["dryRun"]] if query.get("dryRun") else None,
    )


def _of_body(body: Any) -> DeleteOptions:
    try:
        options = msgspec.convert(body, DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"the DeleteOptions cannot be read: {located(error)}") from None
    if options.kind not in (None, "", "DeleteOptions"):
        raise bad_request(f'no kind "{options.kind}" is registered for a deletion: use DeleteOptions')
    return options


def _causes(options: DeleteOptions) -> list[Cause]:
    found = []
    policy = options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        found.append(cause.invalid("propagationPolicy", policy, detail))
    if policy is not None and policy not in _POLICIES:
        found.append(cause.unsupported_value("propagationPolicy", policy, (*_POLICIES, "nil")))
    if options.dry_run and options.dry_run != ["All"]:
        found.append(cause.unsupported_value("dryRun", options.dry_run, ("All",)))
    return found


def delete(state: State, target: Target, options: DeleteOptions = DeleteOptions()) -> Deleted:  # noqa: B008 – frozen
    """Raises Refusal: 404, or 409 when a precondition does not hold."""
    served = target.served
    stored = state.store.get(target.place)
    if served.resource == NAMESPACE and target.name in IMMORTAL:
        raise forbidden(served.resource, target.name, "this namespace may not be deleted")
    if stored is None:
        raise not_found(served.resource, target.name)
    obj = stored.decode()
    _require(served, stored, obj["metadata"]["uid"], options)
    if served.resource == NAMESPACE:
        return _delete_namespace(state, stored, obj, options)
    return _delete(state, stored, obj, options)


def _require(served: Served, stored: Stored, uid: str, options: DeleteOptions) -> None:
    wanted = options.preconditions or Preconditions()
    name, kind = stored.place.name, served.resource.kind
    if wanted.uid is not None and wanted.uid != uid:
        why = f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({uid}). "
        why += "The object might have been deleted and then recreated"
        raise conflict(served.resource, name, why, kind=kind)
    if wanted.resource_version is not None and wanted.resource_version != str(stored.version):
        why = f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the "
        why += f"ResourceVersion in record ({stored.version}). The object might have been modified"
        raise conflict(served.resource, name, why, kind=kind)


def _delete_namespace(state: State, stored: Stored, obj: dict[str, Any], options: DeleteOptions) -> Deleted:
    """Its content goes first; ``namespace`` sees to it and takes the finalizer away."""
    if "deletionTimestamp" in obj["metadata"]:
        return Deleted(stored, is_gone=False)
    obj["metadata"]["deletionTimestamp"] = state.timestamp()
    obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return Deleted(_put(state, stored, obj, options), is_gone=False)


def _delete(state: State, stored: Stored, obj: dict[str, Any], options: DeleteOptions) -> Deleted:
    meta = obj["metadata"]
    is_graceful = stored.place.resource == "pods"
    if is_graceful and meta.get("deletionGracePeriodSeconds") and "deletionTimestamp" in meta:
        if not _shorten(meta, options, state.now()):
            return Deleted(stored, is_gone=False)
    elif is_graceful and "deletionTimestamp" not in meta:
        _begin(meta, _grace(obj, options), state.now())
    has_new_finalizers = _set_finalizers(meta, options, orphans=stored.place.resource in _ORPHANING)
    if meta.get("finalizers"):
        _mark(meta, state.timestamp(), is_graceful=is_graceful)
    waits = bool(meta.get("finalizers")) or bool(meta.get("deletionGracePeriodSeconds"))
    before = msgspec.json.encode(obj, order="deterministic")
    changed = has_new_finalizers or before != msgspec.json.encode(stored.decode(), order="deterministic")
    if changed and (waits or is_graceful):
        stored = _put(state, stored, obj, options)
    if waits:
        return Deleted(stored, is_gone=False)
    return Deleted(stored if options.is_dry_run else state.store.remove(stored.place), is_gone=True)


def _grace(pod: dict[str, Any], options: DeleteOptions) -> int:
    """A pod that no node has, or that has ended, needs no time."""
    grace = options.grace_period_seconds
    if grace is None:
        own = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
        grace = own if isinstance(own, int) else _DEFAULT_GRACE
    if not (pod.get("spec") or {}).get("nodeName") or (pod.get("status") or {}).get("phase") in _ENDED:
        return 0
    return 1 if grace < 0 else grace


def _begin(meta: dict[str, Any], grace: int, now: datetime.datetime) -> None:
    meta["deletionTimestamp"] = _after(now, grace)
    meta["deletionGracePeriodSeconds"] = grace
    if meta.get("generation"):
        meta["generation"] += 1


def _shorten(meta: dict[str, Any], options: DeleteOptions, now: datetime.datetime) -> bool:
    """A second deletion may only be sooner; False when it is not."""
    grace, before = options.grace_period_seconds, meta["deletionGracePeriodSeconds"]
    if grace is not None and grace < 0:
        grace = 1
    if grace is None or grace >= before:
        return False
    end = datetime.datetime.fromisoformat(meta["deletionTimestamp"]) + datetime.timedelta(seconds=grace - before)
    if end < now:
        end, grace = now, min(grace, 1)
    meta["deletionTimestamp"] = timestamp(end)
    meta["deletionGracePeriodSeconds"] = grace
    return True


def _after(now: datetime.datetime, grace: int) -> str:
    try:
        return timestamp(now + datetime.timedelta(seconds=grace))
    except OverflowError:
        raise bad_request(f"gracePeriodSeconds: {grace} seconds are more than a calendar can say") from None


def _mark(meta: dict[str, Any], now: str, *, is_graceful: bool) -> None:
    """Being deleted, and waiting for finalizers."""
    if is_graceful:
        return
    if "deletionGracePeriodSeconds" not in meta and meta.get("generation"):
        meta["generation"] += 1
    meta.setdefault("deletionTimestamp", now)
    meta["deletionGracePeriodSeconds"] = 0


def _set_finalizers(meta: dict[str, Any], options: DeleteOptions, *, orphans: bool) -> bool:
    """What becomes of the dependents is said by a finalizer that the collector takes away. True if that is new."""
    finalizers = list(meta.get("finalizers") or [])
    wanted = [each for each in finalizers if each not in (ORPHAN, FOREGROUND)]
    if _orphans(finalizers, options, by_default=orphans):
        wanted.append(ORPHAN)
    if _waits_for_dependents(finalizers, options):
        wanted.append(FOREGROUND)
    if set(wanted) == set(finalizers):
        return False
    meta.pop("finalizers", None)
    if wanted:
        meta["finalizers"] = wanted
    return True


def _orphans(finalizers: list[str], options: DeleteOptions, *, by_default: bool) -> bool:
    if options.orphan_dependents is not None:
        return options.orphan_dependents
    if options.propagation_policy is not None:
        return options.propagation_policy == "Orphan"
    return ORPHAN in finalizers or (by_default and FOREGROUND not in finalizers)


def _waits_for_dependents(finalizers: list[str], options: DeleteOptions) -> bool:
    if options.orphan_dependents is not None:
        return False
    if options.propagation_policy is not None:
        return options.propagation_policy == "Foreground"
    return FOREGROUND in finalizers


def _put(state: State, stored: Stored, obj: dict[str, Any], options: DeleteOptions) -> Stored:
    if not options.is_dry_run:
        return state.store.put(stored.place, obj)
    return Stored(stored.place, stored.version, msgspec.json.encode(obj))
