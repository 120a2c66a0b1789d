"""A schema beside an object and what it was before: which schema holds below, what the old value was, and whether it
changed.
"""

import json
from typing import Any

import msgspec

Schema = dict[str, Any]

ABSENT: Any = object()
"""There is no old value, or it is not known which one it is."""


def child_schema(schema: Schema, key: str) -> Schema | None:
    known: Schema | None = schema.get("properties", {}).get(key)
    if known is not None:
        return known
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, dict) else None


_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def type_of(value: Any) -> str:
    return next((name for each, name in _TYPES if isinstance(value, each)), "null")


def below(schema: Schema, path: str, key: str) -> str:
    if key in schema.get("properties", {}):
        return f"{path}.{key}" if path else key
    return f"{path}[{key}]"


def old_field(schema: Schema, old: Any, key: str) -> Any:
    if isinstance(old, dict) and key in old and child_schema(schema, key) is not None:
        return old[key]
    return ABSENT


def _list_key(schema: Schema, item: Any) -> str | None:
    """What tells an item of a keyed list from its neighbours; None for any other list."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(item, dict):
        return None
    return json.dumps([item.get(key) for key in schema.get("x-kubernetes-list-map-keys", ())], sort_keys=True)


def old_item(schema: Schema, old: Any, item: Any) -> Any:
    key = _list_key(schema, item)
    if key is None or not isinstance(old, list):
        return ABSENT
    return next((each for each in old if _list_key(schema, each) == key), ABSENT)


def is_unchanged(value: Any, old: Any, schema: Schema | None) -> bool:
    """Equal as far as the API server can see: it takes an object with a field unknown to the schema for changed."""
    if old is ABSENT or schema is None:
        return False
    if isinstance(value, dict) and isinstance(old, dict):
        return len(value) == len(old) and all(
            is_unchanged(each, old_field(schema, old, key), child_schema(schema, key)) for key, each in value.items()
        )
    if isinstance(value, list) and isinstance(old, list) and schema.get("x-kubernetes-list-type") == "map":
        return len(value) == len(old) and all(
            is_unchanged(each, old_item(schema, old, each), schema.get("items")) for each in value
        )
    return is_same(value, old)


def is_same(value: Any, other: Any) -> bool:
    """Equal in JSON's sense, where true is not 1."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value, order="sorted") == msgspec.json.encode(other, order="sorted")
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)
