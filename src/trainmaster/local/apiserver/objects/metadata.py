"""``metadata``, which all objects share: how it is read, checked, and carried from one version to the next."""

import datetime
import uuid
from typing import Any

import msgspec

from trainmaster.core.errors import located
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.objects.label import key_complaints, subdomain_complaints, value_complaints

_LARGEST_ANNOTATIONS = 256 * 1024
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer of a CustomResourceDefinition: its objects go first."""
_STANDARD_FINALIZERS = frozenset({"kubernetes", "foregroundDeletion", "orphan", CLEANUP})


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | msgspec.UnsetType | None = msgspec.UNSET
    block_owner_deletion: bool | msgspec.UnsetType | None = msgspec.UNSET


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    self_link: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: datetime.datetime | None = None
    deletion_timestamp: datetime.datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None
    owner_references: list[_Owner] | None = None
    finalizers: list[str] | None = None
    managed_fields: list[dict[str, Any]] | None = None


_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(_Metadata))
# Nobody may set these: they are the server's, or of no meaning any more, or not kept here.
_DROPPED = ("selfLink", "managedFields")


def unknown_fields(raw: Any) -> list[str]:
    """Names that Kubernetes would drop."""
    return [f"metadata.{name}" for name in raw if name not in _FIELDS] if isinstance(raw, dict) else []


def normal(raw: Any) -> dict[str, Any]:
    """Only what is known and said, with the types that it must have; raises ValueError."""
    try:
        read = msgspec.convert({} if raw is None else raw, _Metadata)
    except msgspec.ValidationError as error:
        raise ValueError(located(error, "metadata")) from None
    for field in ("creation_timestamp", "deletion_timestamp"):
        _require_zone(field, getattr(read, field))
    found: dict[str, Any] = {key: value for key, value in msgspec.to_builtins(read).items() if value or value == 0}
    for field in _DROPPED:
        found.pop(field, None)
    for field, moment in (
        ("creationTimestamp", read.creation_timestamp),
        ("deletionTimestamp", read.deletion_timestamp),
    ):
        if moment is not None:
            found[field] = moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for field in ("labels", "annotations"):
        if field in found:
            found[field] = {key: value or "" for key, value in found[field].items()}
    if found.get("generation") == 0:
        del found["generation"]
    return found


def _require_zone(field: str, moment: datetime.datetime | None) -> None:
    if moment is not None and moment.tzinfo is None:
        raise ValueError(f"metadata.{field}: a time without a zone")


def born(metadata: dict[str, Any], now: str) -> None:
    """Give a new object what only the server gives."""
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
        metadata.pop(field, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now


def carry(metadata: dict[str, Any], old: dict[str, Any]) -> None:
    """What an update leaves out of the server's own fields stays; what it says about them is checked elsewhere."""
    for field in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if field in old:
            metadata.setdefault(field, old[field])
    metadata["creationTimestamp"] = old["creationTimestamp"]
    metadata["resourceVersion"] = old["resourceVersion"]
    metadata.pop("generation", None)
    if "generation" in old:
        metadata["generation"] = old["generation"]


def errors(metadata: dict[str, Any], *, is_custom: bool = False) -> list[Cause]:
    """All that is wrong with metadata. Finalizers of custom resources need no domain."""
    return [
        *_name_errors(metadata),
        *_map_errors(metadata),
        *_owner_errors(metadata.get("ownerReferences", [])),
        *_finalizer_errors(metadata.get("finalizers", []), is_custom=is_custom),
    ]


def update_errors(metadata: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What an update may not change."""
    found = []
    added = [each for each in metadata.get("finalizers", []) if each not in old.get("finalizers", [])]
    if "deletionTimestamp" in old and added:
        words = ", ".join(cause.quoted(each) for each in added)
        detail = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{words}}}"
        )
        found.append(cause.forbidden("metadata.finalizers", detail))
    fixed = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
    changed = [field for field in fixed if metadata.get(field) != old.get(field)]
    return found + [cause.invalid(f"metadata.{field}", metadata.get(field), "field is immutable") for field in changed]


def _name_errors(metadata: dict[str, Any]) -> list[Cause]:
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    found = []
    if prefix:
        # A dash at the end is fine: more follows.
        masked = prefix[:-1] + "a" if prefix.endswith("-") else prefix
        found += [cause.invalid("metadata.generateName", prefix, each) for each in subdomain_complaints(masked)]
    if not name:
        found.append(cause.required("metadata.name", "name or generateName is required"))
    else:
        found += [cause.invalid("metadata.name", name, each) for each in subdomain_complaints(name)]
    return found


def _map_errors(metadata: dict[str, Any]) -> list[Cause]:
    found = []
    for key, value in sorted(metadata.get("labels", {}).items()):
        found += [cause.invalid("metadata.labels", key, each) for each in key_complaints(key)]
        found += [cause.invalid("metadata.labels", value, each) for each in value_complaints(value)]
    annotations = metadata.get("annotations", {})
    for key in sorted(annotations):
        found += [cause.invalid("metadata.annotations", key, each) for each in key_complaints(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _LARGEST_ANNOTATIONS:
        found.append(cause.too_long("metadata.annotations", _LARGEST_ANNOTATIONS))
    return found


def _owner_errors(owners: list[dict[str, Any]]) -> list[Cause]:
    found = []
    controllers = [f"{owner['kind']}/{owner['name']}" for owner in owners if owner.get("controller")]
    for owner in owners:
        where = "metadata.ownerReferences"
        if not owner.get("apiVersion") or owner["apiVersion"].count("/") > 1:
            found.append(cause.invalid(f"{where}.apiVersion", owner.get("apiVersion", ""), "version must not be empty"))
        found += [
            cause.invalid(f"{where}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
    if len(controllers) > 1:
        both = " and ".join(controllers[:2])
        detail = f'Only one reference can have Controller set to true. Found "true" in references for {both}'
        shown = msgspec.json.encode(owners).decode()
        said = f"Invalid value: {shown}: {detail}"
        found.append(Cause("metadata.ownerReferences", "FieldValueInvalid", said))
    return found


def _finalizer_errors(finalizers: list[str], *, is_custom: bool) -> list[Cause]:
    found = []
    for index, name in enumerate(finalizers):
        where = f"metadata.finalizers[{index}]"
        found += [cause.invalid("metadata.finalizers", name, each) for each in key_complaints(name)]
        if not is_custom and "/" not in name and name not in _STANDARD_FINALIZERS and not key_complaints(name):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(cause.invalid(where, name, detail))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        found.append(cause.invalid("metadata.finalizers", finalizers, detail))
    return found
