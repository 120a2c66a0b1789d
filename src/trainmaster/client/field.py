"""Which fields an object may have, by its schema, and their descriptions.

An API server drops what it does not know without a word; who wrote ``replica: 4`` wants to hear of it before the job
runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
Fields = Mapping[str, Schema]

# Of the metadata a schema names what rules need; the API server knows the rest.
_METADATA = "metadata"
_STATUS = "status"


def names_at(schema: Schema, path: tuple[str | int, ...]) -> list[str] | None:
    """The fields that may stand at ``path``; None where any may."""
    if path and path[0] == _METADATA:
        return None
    here: Schema | None = schema
    for part in path:
        here = _inside(here, part) if here is not None else None
    if here is None or not _is_closed(here):
        return None
    return list(here["properties"])


def unknown(schema: Schema, value: Any, path: str = "") -> Iterator[tuple[str, Iterable[str]]]:
    """The paths of all fields that would be dropped, each with the names that are known in its place."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not path and name in (_METADATA, _STATUS):
                continue
            where = f"{path}.{name}" if path else str(name)
            if _is_closed(schema) and name not in schema["properties"]:
                yield where, schema["properties"]
            elif (deeper := _inside(schema, name)) is not None:
                yield from unknown(deeper, inner, where)
    elif isinstance(value, list) and "items" in schema:
        for index, inner in enumerate(value):
            yield from unknown(schema["items"], inner, f"{path}[{index}]")


def _is_closed(schema: Schema) -> bool:
    return "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields")


def _inside(schema: Schema, part: str | int) -> Schema | None:
    if isinstance(part, int):
        found = schema.get("items")
    else:
        found = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return found if isinstance(found, Mapping) else None


# --- for people ---


def content(schema: Schema) -> Schema:
    """The schema of the entries of lists and maps, and of the entries of these."""
    while (found := schema.get("items") or schema.get("additionalProperties")) is not None:
        schema = found
    return schema


def fields_of(schema: Schema) -> Fields:
    """The fields of an object, or of the objects in a list or map: the required ones first, then by name."""
    here = content(schema)
    required = here.get("required", ())
    properties: Mapping[str, Schema] = here.get("properties", {})
    return {name: properties[name] for name in sorted(properties, key=lambda name: (name not in required, name))}


def type_of(schema: Schema) -> str:
    """As `kubectl explain` writes it."""
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    match schema.get("type", "any"):
        case "array":
            return f"[]{type_of(schema['items'])}"
        case "object" if "additionalProperties" in schema:
            return f"map[string]{type_of(schema['additionalProperties'])}"
        case "object":
            return "Object"
        case "string" if schema.get("format") == "date-time":
            return "time"
        case name:
            return str(name)


def bounds_of(schema: Schema) -> str:
    """Which values are accepted; empty for all of the type."""
    if values := [value for value in schema.get("enum", ()) if value]:
        return ", ".join(values)
    least, most = schema.get("minimum"), schema.get("maximum")
    most = None if most in _NO_MAXIMUM else most
    for noun, suffix in (("Items", " entries"), ("Properties", " entries"), ("Length", " characters")):
        if f"min{noun}" in schema or f"max{noun}" in schema:
            return f"{_range(schema.get(f'min{noun}'), schema.get(f'max{noun}'))}{suffix}"
    return _range(least, most)


_NO_MAXIMUM = (2**31 - 1, 2**63 - 1)


def _range(least: int | None, most: int | None) -> str:
    if least in (None, -(2**31)):
        return "" if most is None else f"at most {most}"
    return f"{least} or more" if most is None else f"{least} to {most}"
