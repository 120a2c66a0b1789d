"""Objects that no client of ours writes and that a store must survive."""

from collections.abc import Iterator
from copy import deepcopy
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

WRONG = {
    "null": b"null",
    "text": b'"text"',
    "a number": b"7",
    "a negative number": b"-3",
    "true": b"true",
    "an empty list": b"[]",
    "a list": b'[7,{"a":{}}]',
    "an empty object": b"{}",
    "an object": b'{"a":7}',
    "a float that is too large": b"1e999",
    "an integer that is too large": b"1" + b"0" * 400,
    "no JSON": b"NaN",
    "half a surrogate pair": b'"\\ud800"',
    "NUL": b'"\\u0000"',
    "right to left": '"\u202eabc"'.encode(),
}
"""Small values of wrong types for any field, as JSON."""


def variants(body: Json) -> Iterator[tuple[str, Json]]:
    """The object with MARK for each of its fields in turn, at every depth, and the path of that field."""
    for path in _paths(body):
        changed = deepcopy(body)
        place: Any = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = MARK
        yield ".".join(map(str, path)), changed


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from _paths(inner, (*path, step))


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
