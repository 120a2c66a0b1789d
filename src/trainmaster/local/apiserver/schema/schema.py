"""Structural schemas of CustomResourceDefinitions: what is dropped, filled in and refused, as kube-apiserver does it.

The order is the API server's own: ``prune``, then ``default``, then ``errors``. Both of the former change the object.
CEL rules are not evaluated: for our own kinds admission says the same (docs/decisions/0016).
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.schema import pattern
from trainmaster.local.apiserver.schema.old_value import (
    ABSENT,
    Schema,
    below,
    child_schema,
    is_same,
    is_unchanged,
    old_field,
    old_item,
    type_of,
)
from trainmaster.local.apiserver.schema.text_format import is_format, is_known

_META = ("apiVersion", "kind", "metadata")
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_NOT_CHECKED = cause.invalid(
    cause.NOWHERE,
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


class Structural:
    """An openAPIV3Schema that was read once, and serves every write of its resource."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._has_rules = _has_rules(schema)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Drop what the schema does not know; answers the paths of what was dropped, in their order."""
        unknown: list[str] = []
        _prune(obj, {**self._schema, "x-kubernetes-embedded-resource": True}, "", unknown)
        return sorted(unknown)

    def default(self, obj: dict[str, Any]) -> None:
        """Drop nulls where null is no value, and fill in defaults."""
        _drop_nulls(obj, self._schema)
        _default(obj, self._schema)

    def errors(self, obj: dict[str, Any], old: dict[str, Any] | None, metadata: Sequence[Cause] = ()) -> list[Cause]:
        """All that is wrong, what was found in the metadata first. What an update leaves as it was is forgiven."""
        before = ABSENT if old is None else old
        found = [*metadata, *_check(obj, self._schema, "", before), *_list_errors(obj, self._schema, "")]
        if self._has_rules and any(each.reason in _BLOCKING for each in found):
            found.append(_NOT_CHECKED)  # true of admission as well, which comes later
        return found


def _has_rules(value: Any) -> bool:
    """Whether there is a CEL rule anywhere in a schema."""
    if isinstance(value, dict):
        return bool(value.get("x-kubernetes-validations")) or any(map(_has_rules, value.values()))
    return isinstance(value, list) and any(map(_has_rules, value))


# -- pruning ---------------------------------------------------------------------------------------------------


def _prune(value: Any, schema: Schema | None, path: str, unknown: list[str]) -> None:
    if isinstance(value, list):
        items = (schema or {}).get("items")
        keeps_all = bool((schema or {}).get("x-kubernetes-preserve-unknown-fields"))
        for index, each in enumerate(value):
            if items is not None or not keeps_all:
                _prune(each, items, f"{path}[{index}]", unknown)
    elif isinstance(value, dict):
        _prune_object(value, schema or {}, path, unknown)


def _prune_object(value: dict[str, Any], schema: Schema, path: str, unknown: list[str]) -> None:
    keeps_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    for key in list(value):
        if schema.get("x-kubernetes-embedded-resource") and key in _META:
            continue
        where = f"{path}.{key}" if path else key
        child = child_schema(schema, key)
        if child is not None:
            _prune(value[key], child, where, unknown)
        elif not keeps_unknown and not _takes_anything(schema):
            unknown.append(where)
            del value[key]


def _takes_anything(schema: Schema) -> bool:
    return schema.get("additionalProperties") is True


# -- defaulting ------------------------------------------------------------------------------------------------


def _is_bad_null(value: Any, schema: Schema | None) -> bool:
    return value is None and schema is not None and not schema.get("nullable")


def _drop_nulls(value: Any, schema: Schema | None) -> None:
    if schema is None:
        return
    if isinstance(value, list):
        for each in value:
            _drop_nulls(each, schema.get("items"))
    elif isinstance(value, dict):
        for key in list(value):
            child = child_schema(schema, key)
            if _is_bad_null(value[key], child) and (child or {}).get("default") is None:
                del value[key]
            else:
                _drop_nulls(value[key], child)


def _default(value: Any, schema: Schema | None) -> None:
    if schema is None:
        return
    if isinstance(value, list):
        items = schema.get("items")
        for index, each in enumerate(value):
            if _is_bad_null(each, items):
                value[index] = copy.deepcopy((items or {}).get("default"))
            _default(value[index], items)
    elif isinstance(value, dict):
        _default_object(value, schema)


def _default_object(value: dict[str, Any], schema: Schema) -> None:
    for key, child in schema.get("properties", {}).items():
        default = child.get("default")
        if default is not None and (key not in value or _is_bad_null(value[key], child)):
            value[key] = copy.deepcopy(default)
    for key in value:
        found = child_schema(schema, key)
        if _is_bad_null(value[key], found):
            value[key] = copy.deepcopy((found or {}).get("default"))
        elif found is not None and isinstance(value[key], float):
            value[key] = _number(value[key])
        _default(value[key], found)


def _number(value: float) -> float:
    """Go writes a whole number without a point, unless it is very large."""
    return int(value) if value.is_integer() and abs(value) < _LARGEST_WRITTEN_OUT else value


_LARGEST_WRITTEN_OUT = 1e21


# -- shapes and ranges -----------------------------------------------------------------------------------------


def _types(schema: Schema) -> list[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _field(path: str) -> str:
    return path.lstrip(".") or cause.NOWHERE


def _wrong(path: str, value: Any, says: str) -> Cause:
    return cause.invalid(_field(path), value, f"{path.lstrip('.')} in body {says}")


def _check(value: Any, schema: Schema, path: str, old: Any) -> list[Cause]:
    """All that is wrong below a path, unless it was there before."""
    found = [*_type_errors(value, schema, path)]
    if value is not None:
        found += _combination_errors(value, schema, path)
    checks = _CHECKS.get(type_of(value))
    if checks:
        found += checks(value, schema, path, old)
    if type_of(value) not in ("object", "array"):
        found += _enum_errors(value, schema, path)
    return [] if found and is_unchanged(value, old, schema) else found


def _type_errors(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    wanted = _types(schema)
    given = type_of(value)
    if not wanted or given in wanted or (value is None and schema.get("nullable")):
        return
    if given == "integer" and "number" in wanted:
        return
    if isinstance(value, float) and value.is_integer() and "integer" in wanted:
        return
    text = ",".join(wanted)
    word = _checked_format(schema)
    if word and given not in ("string", "array"):
        # The machine's types stand in for JSON's as soon as a format is said.
        text, given = word, {"integer": "int64", "number": "float64", "null": "null"}.get(given, "")
    says = f'{path.lstrip(".")} in body must be of type {text}: "{given}"'
    yield cause.wrong_type(_field(path), given, says)


def _checked_format(schema: Schema) -> str:
    """The format that the API server looks at: a word that it does not know for this type is as good as none."""
    word, types = schema.get("format", ""), _types(schema)
    if types == ["integer"]:
        return word if word in ("int32", "int64") else ""
    if types == ["number"]:
        return word if word in ("float", "double") else ""
    return word if types == ["string"] and is_known(word) else ""


def _combination_errors(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    def fits(each: Schema) -> bool:
        return not _check(value, each, path, ABSENT)

    name = path.lstrip(".")
    if schema.get("anyOf") and not any(map(fits, schema["anyOf"])):
        yield cause.invalid(cause.NOWHERE, "", f'"{name}" must validate at least one schema (anyOf)')
        yield from _check(value, schema["anyOf"][0], path, ABSENT)
    if schema.get("oneOf"):
        count = sum(map(fits, schema["oneOf"]))
        if count != 1:
            found = "Found none valid" if count == 0 else f"Found {count} valid alternatives"
            yield cause.invalid(cause.NOWHERE, "", f'"{name}" must validate one and only one schema (oneOf). {found}')
        if count == 0:
            yield from _check(value, schema["oneOf"][0], path, ABSENT)
    yield from _all_of_errors(value, schema.get("allOf", ()), path)
    if schema.get("not") and fits(schema["not"]):
        yield cause.invalid(cause.NOWHERE, "", f'"{name}" must not validate the schema (not)')


def _all_of_errors(value: Any, schemas: Sequence[Schema], path: str) -> Iterator[Cause]:
    found = [_check(value, each, path, ABSENT) for each in schemas]
    if any(found):
        suffix = ". None validated" if all(found) else ""
        says = f'"{path.lstrip(".")}" must validate all the schemas (allOf){suffix}'
        yield cause.invalid(cause.NOWHERE, "", says)
    for each in found:
        yield from each


def _enum_errors(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    allowed = schema.get("enum")
    if allowed and not any(is_same(value, each) for each in allowed):
        words = [each if isinstance(each, str) else json.dumps(each) for each in allowed]
        yield cause.unsupported_value(_field(path), value, words)


def _string_errors(value: str, schema: Schema, path: str, _: Any) -> Iterator[Cause]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield cause.too_long(_field(path), schema["maxLength"])
    elif "minLength" in schema and len(value) < schema["minLength"]:
        yield _wrong(path, value, f"should be at least {schema['minLength']} chars long")
    elif schema.get("pattern") and not _matches(schema["pattern"], value):
        yield _wrong(path, value, f"should match '{schema['pattern']}'")
    word = schema.get("format", "")
    if "string" in _types(schema) and word and not is_format(word, value):
        says = f"{path.lstrip('.')} in body must be of type {word}: {cause.quoted(value)}"
        yield cause.wrong_type(_field(path), value, says)


def _matches(regex: str, value: str) -> bool:
    try:
        return pattern.compiled(regex).search(value) is not None
    except re.error:
        return False


_RANGES = {"int32": 2**31, "int64": 2**63}


def _number_errors(value: float, schema: Schema, path: str, _: Any) -> Iterator[Cause]:
    yield from _range_errors(value, schema, path)
    multiple = schema.get("multipleOf")
    if multiple and not (value / multiple).is_integer():
        yield _wrong(path, value, f"should be a multiple of {cause.shown(multiple)}")
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is not None and (value <= minimum if schema.get("exclusiveMinimum") else value < minimum):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _wrong(path, value, f"should be {word} {cause.shown(minimum)}")
    if maximum is not None and (value >= maximum if schema.get("exclusiveMaximum") else value > maximum):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _wrong(path, value, f"should be {word} {cause.shown(maximum)}")


def _range_errors(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    if _types(schema) != ["integer"]:
        return
    word = schema.get("format", "")
    limit = _RANGES.get(word, 2**63)
    if value != int(value) or not -limit <= value < limit:
        suffix = f"with format {word}" if word in _RANGES else "(default format)"
        says = f"Checked value must be of type integer {suffix} in {path.lstrip('.')}"
        yield cause.invalid(cause.NOWHERE, "", says)


def _array_errors(value: list[Any], schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    items = schema.get("items")
    if items:
        for index, each in enumerate(value):
            yield from _check(each, items, f"{path}[{index}]", old_item(schema, old, each))
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield _wrong(path, len(value), f"should have at least {schema['minItems']} items")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield cause.too_many(_field(path), len(value), schema["maxItems"])
    if schema.get("uniqueItems") and len({json.dumps(each, sort_keys=True) for each in value}) < len(value):
        yield _wrong(path, "", "shouldn't contain duplicates")
    yield from _enum_errors(value, schema, path)


def _object_errors(value: dict[str, Any], schema: Schema, path: str, old: Any) -> Iterator[Cause]:
    yield from _enum_errors(value, schema, path)
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        yield _wrong(path, len(value), f"should have at least {schema['minProperties']} properties")
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield cause.too_many(_field(path), len(value), schema["maxProperties"])
    for key, each in value.items():
        child = child_schema(schema, key)
        if child is not None:
            yield from _check(each, child, f"{path}.{key}", old_field(schema, old, key))
    for key in schema.get("required", ()):
        if key not in value:
            yield cause.required(_field(f"{path}.{key}"))


_CHECKS: dict[str, Callable[[Any, Schema, str, Any], Iterator[Cause]]] = {
    "string": _string_errors,
    "integer": _number_errors,
    "number": _number_errors,
    "array": _array_errors,
    "object": _object_errors,
}


# -- keyed lists and sets --------------------------------------------------------------------------------------


def _list_errors(value: Any, schema: Schema | None, path: str) -> Iterator[Cause]:
    """Items that occur twice. Here a key of a map stands in brackets."""
    if schema is None:
        return
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _list_errors(each, child_schema(schema, key), below(schema, path, key))
    elif isinstance(value, list):
        yield from _duplicates(value, schema, path)
        for index, each in enumerate(value):
            yield from _list_errors(each, schema.get("items"), f"{path}[{index}]")


def _duplicates(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    sort = schema.get("x-kubernetes-list-type")
    if sort not in ("map", "set"):
        return
    keys = schema.get("x-kubernetes-list-map-keys", ())
    counts: dict[str, int] = {}
    for index, each in enumerate(value):
        if sort == "map" and not isinstance(each, dict):
            continue
        identity = {key: each[key] for key in keys if key in each} if sort == "map" else each
        text = json.dumps(identity, sort_keys=True)
        counts[text] = counts.get(text, 0) + 1
        if counts[text] == 2:
            yield cause.duplicate(f"{path}[{index}]", identity)
