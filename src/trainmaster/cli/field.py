"""Which fields an object may have, by its schema. An API server drops what it does not know without a word; who wrote
``replica: 4`` wants to hear of it before the job runs."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

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


def unknown(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields that would be dropped."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not path and name in (_METADATA, _STATUS):
                continue
            where = f"{path}.{name}" if path else str(name)
            if _is_closed(schema) and name not in schema["properties"]:
                yield where
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
