"""Objects that no client of ours writes and that a store must survive."""

from typing import Any

import msgspec

Json = dict[str, Any]

MARK = "the value of this field"


def deep(levels: int) -> bytes:
    """A JSON value nested so deeply. Python's own encoder cannot write it."""
    return b'{"a":' * levels + b"1" + b"}" * levels


def with_value(body: Json, value: bytes) -> bytes:
    """The object as JSON, with ``value`` for each field that has MARK."""
    return msgspec.json.encode(body).replace(msgspec.json.encode(MARK), value)


VALUES = {
    "1500 levels": deep(1500),
    "9000 levels": deep(9000),
    "9000 levels of arrays": b"[" * 9000 + b"]" * 9000,
    "1.4 MB": b'"' + b"x" * 1_400_000 + b'"',
    "1.4 MB of objects": b"[" + b",".join([b'{"a":[]}'] * 155_000) + b"]",
    "line breaks of unicode": '"a\u0085b\u2028c\u2029d"'.encode(),
    "half a surrogate pair": b'"\\ud800 and more text"',
    "half a surrogate pair at the end": b'"\\ud800"',
    "not UTF-8": b'"\xff\xfe"',
    "NUL": b'"\\u0000"',
    "huge integer": b"9" * 5000,
    "huge float": b"1e99999",
    "negative": b"-9223372036854775809",
    "a number": b"7",
    "text": b'"text"',
    "true": b"true",
    "null": b"null",
    "a list": b'[[],{},7,"x",null]',
    "an object": b'{"":{},"metadata":{"name":"wrong","resourceVersion":"999999"}}',
}
"""What may stand in any field of an object, as JSON."""

FIELDS = (
    "spec",
    "status",
    "other",
    "metadata.labels",
    "metadata.ownerReferences",
    "metadata.managedFields",
    "metadata.deletionTimestamp",
    "spec.containers",
    "spec.template",
    "spec.nodeName",
    "spec.taints",
    "status.phase",
    "status.ports",
    "status.conditions",
    "status.containerStatuses",
    "status.podIPs",
    "status.allocatable",
)
LARGE = ("spec", "status", "metadata.managedFields")


def fields_for(value: str) -> tuple[str, ...]:
    """Where to put this one of VALUES. Large ones take time."""
    return FIELDS if len(VALUES[value]) < 100_000 else LARGE


def an_object(name: str, version: int, field: str = "") -> Json:
    """Small and of no kind; one field has MARK."""
    metadata: Json = {"name": name, "namespace": "ml", "uid": f"uid-of-{name}", "resourceVersion": str(version)}
    body: Json = {"metadata": metadata, "spec": {}, "status": {}}
    place, (*path, last) = body, field.split(".")
    for step in path:
        place = place[step]
    if last:
        place[last] = MARK
    return body
