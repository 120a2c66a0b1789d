"""Discovery: versions, groups, resources, and as much OpenAPI as kubectl needs.

kubectl uses OpenAPI for three things: whether the server validates fields (then kubectl does not), the schema of a kind
(``kubectl explain``), and how lists merge. For the last one it has built-in tables, which it uses if the document does
not offer strategic merge patches. So the document of a group and version has a patch operation and a schema for each
kind.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from trainmaster.local.apiserver.objects import builtin_types as shape
from trainmaster.local.apiserver.objects.resource import Served

Answer = tuple[int, str, bytes]
Document = dict[str, Any]

MINOR = "36"
JSON = "application/json"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_GROUP = re.compile(r"/apis/(?P<group>[^/]+)")
_GROUP_VERSION = re.compile(r"(?:/api|/apis/(?P<group>[^/]+))/(?P<version>[^/]+)")
_DOCUMENT = re.compile(r"/openapi/v3(?P<path>(?:/api|/apis/[^/]+)/[^/]+)")

# Subresources with a kind of their own; the others have the kind of their resource.
_SUBRESOURCE_KINDS = {
    "scale": "Scale",
    "eviction": "Eviction",
    "binding": "Binding",
    "exec": "PodExecOptions",
    "portforward": "PodPortForwardOptions",
}
_SUBRESOURCE_GROUPS = {"scale": ("autoscaling", "v1"), "eviction": ("policy", "v1")}
_SUBRESOURCE_VERBS = {
    "log": ("get",),
    "binding": ("create",),
    "eviction": ("create",),
    "exec": ("create", "get"),
    "portforward": ("create", "get"),
    "finalize": ("update",),
}
_WRITTEN = ("get", "patch", "update")


def answer(path: str, accept: str, served: Sequence[Served]) -> Answer | None:
    """Status, content type and body of a discovery path; None for any other path."""
    path = path.rstrip("/")
    plain = _PLAIN.get(path)
    if plain:
        return plain(accept, served)
    if path == "/openapi/v2":
        return _openapi_v2(accept)
    if match := _DOCUMENT.fullmatch(path):
        return _page(_openapi_document(match["path"], served))
    if match := _GROUP_VERSION.fullmatch(path):
        return _resource_list(match["group"] or "", match["version"], served)
    if match := _GROUP.fullmatch(path):
        return _group(match["group"], served)
    return None


def _json(document: Document, content_type: str = JSON) -> Answer:
    return 200, content_type, msgspec.json.encode(document)


def _page(body: bytes | None) -> Answer:
    return (200, JSON, body) if body is not None else (404, "text/plain; charset=utf-8", b"404 page not found\n")


# -- groups and resources --------------------------------------------------------------------------------------


def _version(_: str, __: Sequence[Served]) -> Answer:
    """/version: the version of the Kubernetes API that is implemented."""
    return _json(
        {
            "major": "1",
            "minor": MINOR,
            "gitVersion": f"v1.{MINOR}.0+trainmaster",
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "",
        }
    )


def _versions(served: Sequence[Served]) -> dict[str, dict[str, list[Served]]]:
    """Resources by group and version, in their original order."""
    groups: dict[str, dict[str, list[Served]]] = {}
    for resource in served:
        groups.setdefault(resource.resource.group, {}).setdefault(resource.resource.version, []).append(resource)
    return {
        group: dict(sorted(versions.items(), key=lambda item: _priority(item[0]))) for group, versions in groups.items()
    }


_VERSION = re.compile(r"v(?P<major>[0-9]+)(?:(?P<stage>alpha|beta)(?P<minor>[0-9]+))?")


def _priority(name: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: v2, v1, v2beta1, v1alpha1, anything else."""
    match = _VERSION.fullmatch(name)
    if not match:
        return (3, 0, 0, name)
    return ({None: 0, "beta": 1, "alpha": 2}[match["stage"]], -int(match["major"]), -int(match["minor"] or 0), name)


def _core(accept: str, served: Sequence[Served]) -> Answer:
    if wanted := _wants_aggregated(accept):
        return _aggregated(wanted, {"": _versions(served).get("", {})})
    return _json(
        {"kind": "APIVersions", "versions": list(_versions(served).get("", {})), "serverAddressByClientCIDRs": []}
    )


def _groups(accept: str, served: Sequence[Served]) -> Answer:
    groups = {group: versions for group, versions in _versions(served).items() if group}
    if wanted := _wants_aggregated(accept):
        return _aggregated(wanted, groups)
    entries = [_group_entry(group, versions) for group, versions in groups.items()]
    return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": entries})


def _group_entry(group: str, versions: dict[str, list[Served]]) -> Document:
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _group(group: str, served: Sequence[Served]) -> Answer:
    versions = _versions(served).get(group)
    if not versions:
        return _page(None)
    return _json({"kind": "APIGroup", "apiVersion": "v1", **_group_entry(group, versions)})


def _resource_list(group: str, version: str, served: Sequence[Served]) -> Answer | None:
    of_version = _versions(served).get(group, {}).get(version)
    if of_version is None:
        return None
    body: Document = {"kind": "APIResourceList", "apiVersion": "v1"}
    if not group:
        del body["apiVersion"]
    entries = [entry for resource in of_version for entry in _resource_entries(resource)]
    return _json({**body, "groupVersion": of_version[0].resource.api_version, "resources": entries})


def _resource_entries(served: Served) -> Iterator[Document]:
    resource = served.resource
    entry = {
        "name": resource.plural,
        "singularName": served.singular,
        "namespaced": served.namespaced,
        "kind": resource.kind,
        "verbs": list(served.verbs),
        "shortNames": list(served.short_names),
        "categories": list(served.categories),
    }
    yield {key: value for key, value in entry.items() if value or key not in ("shortNames", "categories")}
    for name in sorted(served.subresources):
        group, version = _SUBRESOURCE_GROUPS.get(name, ("", ""))
        about: Document = {"group": group, "version": version} if group else {}
        yield {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": served.namespaced,
            **about,
            "kind": _SUBRESOURCE_KINDS.get(name, resource.kind),
            "verbs": list(_SUBRESOURCE_VERBS.get(name, _WRITTEN)),
        }


def _wants_aggregated(accept: str) -> str:
    """The version of aggregated discovery that the client accepts; empty if none."""
    for part in accept.split(","):
        words = [word.strip() for word in part.split(";")]
        if words[0] == JSON and "as=APIGroupDiscoveryList" in words and "g=apidiscovery.k8s.io" in words:
            for version in ("v2", "v2beta1"):
                if f"v={version}" in words:
                    return version
        elif words[0] in (JSON, "*/*"):
            return ""
    return ""


def _aggregated(version: str, groups: dict[str, dict[str, list[Served]]]) -> Answer:
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {"version": name, "resources": [_aggregated_entry(each) for each in resources], "freshness": "Current"}
                for name, resources in versions.items()
            ],
        }
        for group, versions in groups.items()
    ]
    body = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }
    return _json(body, _AGGREGATED.format(version=version))


def _aggregated_entry(served: Served) -> Document:
    resource = served.resource
    own = (resource.group, resource.version)
    entry: Document = {
        "resource": resource.plural,
        "responseKind": _kind_entry(*own, resource.kind),
        "scope": "Namespaced" if served.namespaced else "Cluster",
        "singularResource": served.singular,
        "verbs": list(served.verbs),
        "shortNames": list(served.short_names),
        "categories": list(served.categories),
        "subresources": [
            {
                "subresource": name,
                "responseKind": _kind_entry(
                    *_SUBRESOURCE_GROUPS.get(name, own), _SUBRESOURCE_KINDS.get(name, resource.kind)
                ),
                "verbs": list(_SUBRESOURCE_VERBS.get(name, _WRITTEN)),
            }
            for name in sorted(served.subresources)
        ],
    }
    return {key: value for key, value in entry.items() if value or key == "verbs"}


def _kind_entry(group: str, version: str, kind: str) -> Document:
    return {"group": group, "version": version, "kind": kind}


# -- OpenAPI ---------------------------------------------------------------------------------------------------


def _openapi_v2(accept: str) -> Answer:
    """The OpenAPI v2 document is empty, in both media types: clients use version 3 instead."""
    info = {"title": "Kubernetes", "version": f"v1.{MINOR}"}
    if "proto-openapi.spec.v2" in accept and "json" not in accept:
        title, number = (_protobuf(tag, text.encode()) for tag, text in enumerate(info.values(), 1))
        return 200, _PROTOBUF_V2, _protobuf(1, b"2.0") + _protobuf(2, title + number) + _protobuf(8, b"")
    return _json({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})


def _protobuf(tag: int, value: bytes) -> bytes:
    """A field of a message, shorter than 128 bytes."""
    return bytes([tag << 3 | 2, len(value)]) + value


def _openapi_index(_: str, served: Sequence[Served]) -> Answer:
    paths = {}
    for resource in served:
        path = _path_of(resource)
        body = _openapi_document(path, served)
        digest = hashlib.sha256(body or b"").hexdigest()[:32].upper()
        paths[path.lstrip("/")] = {"serverRelativeURL": f"/openapi/v3{path}?hash={digest}"}
    return _json({"paths": paths})


def _path_of(served: Served) -> str:
    resource = served.resource
    return f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"


def _openapi_document(path: str, served: Sequence[Served]) -> bytes | None:
    mine = [resource for resource in served if _path_of(resource) == path]
    if not mine:
        return None
    schemas: Document = {}
    for resource in mine:
        schemas.update(_schemas(resource))
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v1.{MINOR}"},
        "paths": {_object_path(each): {"patch": _patch_operation(each)} for each in mine},
        "components": {"schemas": schemas},
    }
    return msgspec.json.encode(document)


def _object_path(served: Served) -> str:
    namespace = "/namespaces/{namespace}" if served.namespaced else ""
    return f"{_path_of(served)}{namespace}/{served.resource.plural}/{{name}}"


def _gvk(served: Served) -> Document:
    return _kind_entry(served.resource.group, served.resource.version, served.resource.kind)


def _patch_operation(served: Served) -> Document:
    """What clients look for: field validation, dry run, and the supported patch types."""
    names = ("dryRun", "fieldManager", "fieldValidation")
    reference = {"schema": {"$ref": f"#/components/schemas/{_schema_name(served)}"}}
    patches = ("application/json-patch+json", "application/merge-patch+json")
    return {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _gvk(served),
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names],
        "requestBody": {"content": {patch: {"schema": {"type": "object"}} for patch in patches}, "required": True},
        "responses": {"200": {"description": "OK", "content": {JSON: reference}}},
    }


_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_META_TYPES = frozenset({"ObjectMeta", "OwnerReference", "LabelSelector", "LabelSelectorRequirement", "Condition"})


def _schema_name(served: Served) -> str:
    resource = served.resource
    if served.definition is None:
        return _type_name(resource.kind)
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _type_name(type_: str) -> str:
    return f"{_META}{type_}" if type_ in _META_TYPES else f"io.k8s.api.core.v1.{type_}"


def _schemas(served: Served) -> Document:
    kind = served.resource.kind
    if served.definition is None:
        schemas = {_type_name(name): _type_schema(name) for name in shape.reachable(kind)}
        top = schemas.setdefault(_schema_name(served), {"type": "object"})
    else:
        schemas = {_type_name(name): _type_schema(name) for name in shape.reachable("ObjectMeta")}
        top = _custom_schema(served.definition)
        schemas[_schema_name(served)] = top
    top["x-kubernetes-group-version-kind"] = [_gvk(served)]
    return schemas


def _custom_schema(definition: Document) -> Document:
    schema: Document = dict(definition.get("schema", {}).get("openAPIV3Schema", {}))
    known = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _reference("ObjectMeta")}
    schema["properties"] = {**schema.get("properties", {}), **known}
    return schema


_WORDS: dict[str, Document] = {
    "str": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "quantity": {"type": "string"},
    "int-or-str": {"type": "string", "format": "int-or-string"},
    "any": {"type": "object"},
}


def _reference(type_: str) -> Document:
    return {"allOf": [{"$ref": f"#/components/schemas/{_type_name(type_)}"}]}


def _type_schema(name: str) -> Document:
    fields = shape.types()[name]
    return {"type": "object", "properties": {field: _field_schema(value) for field, value in fields.items()}}


def _field_schema(field: shape.Field) -> Document:
    item = _reference(field.type) if field.type in shape.types() else _WORDS[field.type]
    if field.container == "list":
        return {"type": "array", "items": item}
    if field.container == "map":
        return {"type": "object", "additionalProperties": item}
    return item


_PLAIN: dict[str, Callable[[str, Sequence[Served]], Answer]] = {
    "/version": _version,
    "/api": _core,
    "/apis": _groups,
    "/openapi/v3": _openapi_index,
}
