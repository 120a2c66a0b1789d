"""Encodes stored objects for answers: spliced as bytes where possible, decoded only for tables and metadata."""

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec

from trainmaster.local.apiserver.http.negotiate import Form
from trainmaster.local.apiserver.kubectl.table import as_table
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.store.store import Stored

_META = "meta.k8s.io"


class _OnlyMetadata(msgspec.Struct):
    metadata: msgspec.Raw


_decode_metadata = msgspec.json.Decoder(_OnlyMetadata).decode


def whole(served: Served, stored: Stored) -> bytes:
    """The object in this version."""
    return _head(served) + stored.body[1:]


def whole_object(served: Served, stored: Stored) -> dict[str, Any]:
    return {"kind": served.resource.kind, "apiVersion": served.resource.api_version, **stored.decode()}


def one(served: Served, stored: Stored, form: Form, include_object: str, now: datetime.datetime) -> bytes:
    if not form.kind:
        return whole(served, stored)
    if form.kind == "Table":
        obj = whole_object(served, stored)
        meta = {"resourceVersion": str(stored.version)}
        table = as_table(served, [obj], is_list=False, include_object=include_object, metadata=meta, now=now)
        return msgspec.json.encode(_versioned(table, form))
    return _partial(stored, form)


def many(
    served: Served,
    items: Sequence[Stored],
    metadata: dict[str, Any],
    form: Form,
    include_object: str,
    now: datetime.datetime,
) -> bytes:
    if form.kind == "Table":
        objects = [whole_object(served, stored) for stored in items]
        table = as_table(served, objects, is_list=True, include_object=include_object, metadata=metadata, now=now)
        return msgspec.json.encode(_versioned(table, form))
    meta = msgspec.json.encode(metadata)
    if form.kind:
        return _joined("PartialObjectMetadataList", f"{_META}/{form.version}", meta, [_partial(s, form) for s in items])
    # As in Kubernetes, items of built-in lists have no kind and apiVersion, and items of custom resources have both.
    bodies = [stored.body if served.definition is None else whole(served, stored) for stored in items]
    return _joined(served.list_kind, served.resource.api_version, meta, bodies)


def _head(served: Served) -> bytes:
    return f'{{"kind":"{served.resource.kind}","apiVersion":"{served.resource.api_version}",'.encode()


def _joined(kind: str, api_version: str, metadata: bytes, items: Sequence[bytes]) -> bytes:
    head = f'{{"kind":"{kind}","apiVersion":"{api_version}","metadata":'.encode()
    return b"".join((head, metadata, b',"items":[', b",".join(items), b"]}"))


def _partial(stored: Stored, form: Form) -> bytes:
    metadata = bytes(_decode_metadata(stored.body).metadata)
    head = f'{{"kind":"PartialObjectMetadata","apiVersion":"{_META}/{form.version}","metadata":'.encode()
    return head + metadata + b"}"


def _versioned(table: dict[str, Any], form: Form) -> dict[str, Any]:
    return table if form.version == "v1" else {**table, "apiVersion": f"{_META}/{form.version}"}
