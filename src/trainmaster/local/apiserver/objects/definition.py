"""CustomResourceDefinitions: what is filled in, refused and reported, and how one goes with all its objects."""

from typing import Any

from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.objects.metadata import CLEANUP

_SCOPES = ("Cluster", "Namespaced")


def prepare(obj: dict[str, Any], old: dict[str, Any] | None, subresource: str, now: str) -> None:
    """Defaults, and the status that Kubernetes' controllers would report a moment later."""
    if errors(obj):
        return
    meta, spec = obj["metadata"], obj["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    if old is None:
        meta["generation"] = 1
        meta["finalizers"] = [CLEANUP]
        obj["status"] = _status(spec, now, [])
    elif spec != old["spec"]:
        meta["generation"] = old["metadata"].get("generation", 1) + 1
    if old is not None and subresource != "status":
        obj["status"] = _status(spec, now, (old.get("status") or {}).get("storedVersions") or [])
        obj["status"]["conditions"] = (old.get("status") or {}).get("conditions") or obj["status"]["conditions"]
    elif old is not None:
        obj["spec"] = old["spec"]


def _status(spec: dict[str, Any], now: str, stored: list[str]) -> dict[str, Any]:
    storage = next(version["name"] for version in spec["versions"] if version["storage"])
    conditions = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    return {
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
            for kind, reason, message in conditions
        ],
        "acceptedNames": spec["names"],
        "storedVersions": stored if storage in stored else [*stored, storage],
    }


def errors(obj: dict[str, Any]) -> list[Cause]:
    """What must hold before the definition can be served."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [cause.required("spec")]
    names, versions = spec.get("names"), spec.get("versions")
    found = [cause.required(f"spec.{field}") for field in ("group",) if not _is_word(spec.get(field))]
    if not isinstance(names, dict):
        return [*found, cause.required("spec.names")]
    found += [cause.required(f"spec.names.{field}") for field in ("plural", "kind") if not _is_word(names.get(field))]
    found += [
        cause.invalid(f"spec.names.{field}", names[field], "must be a word")
        for field in ("singular", "listKind")
        if field in names and not _is_word(names[field])
    ]
    found += [
        cause.invalid(f"spec.names.{field}", names[field], "must be a list of words")
        for field in ("shortNames", "categories")
        if names.get(field) is not None and not _are_words(names[field])
    ]
    if spec.get("scope") not in _SCOPES:
        found.append(cause.unsupported_value("spec.scope", spec.get("scope") or "", _SCOPES))
    if found:
        return found
    name = f"{names['plural']}.{spec['group']}"
    if obj["metadata"].get("name") != name:
        detail = 'must be spec.names.plural+"."+spec.group'
        found.append(cause.invalid("metadata.name", obj["metadata"].get("name", ""), detail))
    return found + _version_errors(versions)


def _version_errors(versions: Any) -> list[Cause]:
    if not isinstance(versions, list) or not versions:
        return [cause.required("spec.versions", "must have at least one version")]
    found = []
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}]"
        if not isinstance(version, dict) or not _is_word(version.get("name")):
            found.append(cause.required(f"{where}.name"))
            continue
        flags = [field for field in ("served", "storage") if not isinstance(version.get(field), bool)]
        found += [cause.required(f"{where}.{field}") for field in flags]
        schema = version.get("schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("openAPIV3Schema"), dict):
            found.append(cause.required(f"{where}.schema.openAPIV3Schema", "schemas are required"))
        subresources = version.get("subresources")
        if subresources is not None and not isinstance(subresources, dict):
            found.append(cause.invalid(f"{where}.subresources", subresources, "must be an object"))
    if not found and sum(version["storage"] for version in versions) != 1:
        found.append(cause.invalid("spec.versions", None, "must have exactly one version marked as storage version"))
    return found


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_word, value))
