"""Turns wire types into the OpenAPI schema of a CustomResourceDefinition.

What a decoder accepts and what the API server stores cannot drift apart. The docstrings of a job and of the fields
are the descriptions that ``kubectl explain`` shows.

A schema has shapes, ranges and enums. CEL rules check the rest as far as their cost limits allow, in the same
sentences as ``kinds/*/validate.py``, which checks a job that was stored before the rules existed. Pod templates name
the fields that we read and keep all others, so that a definition stays small enough for ``kubectl apply``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from trainmaster.core.template import ContainerPart, VolumePart
from trainmaster.core.wire import INT32_MAX
from trainmaster.kinds.description import fields_of, plain

Schema = dict[str, Any]

# Lists of these are keyed by name, as they are in a pod: the API server refuses a name that occurs twice. Not env:
# there a repeated name is legal, and the last one wins.
_KEYED: frozenset[type] = frozenset({ContainerPart, VolumePart})


class Rule(msgspec.Struct, frozen=True):
    """A CEL rule. ``oldSelf`` is an optional in it, unless the rule is about changes alone and costs nothing when a job
    is created.

    ``detail`` is a CEL expression for a message with names and numbers; ``message`` is used where it cannot be
    evaluated.
    """

    rule: str
    message: str
    path: str = ""
    """From the object that has the rule to the field that is wrong."""
    detail: str = ""
    is_about_changes: bool = False


Rules = Mapping[type | tuple[type, str], tuple[Rule, ...]]
"""By the wire type whose objects they check, or by a type and one of its fields. A rule belongs as deep as it can: for
each field that it reads of an object, the API server lists all fields that such an object may have."""


def schema_of(job: type[msgspec.Struct], rules: Rules) -> Schema:
    """The whole object. The API server knows the metadata; naming ``name`` lets rules point at it."""
    schema = _Generator(rules).schema(inspect.type_info(job), keeps_unknown=False)
    schema["properties"] = {
        "apiVersion": {"description": "The group and the version of the object.", "type": "string"},
        "kind": {"description": "The kind of the object.", "type": "string"},
        **schema["properties"],
        # The API server has its own description, and takes no other.
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    schema["required"].remove("metadata")
    return {"description": plain(job.__doc__ or ""), **schema}


class _Generator:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def schema(self, type_: inspect.Type, *, keeps_unknown: bool) -> Schema:
        match type_:
            case inspect.Metadata(extra={"schema": described}):
                return _atomic(self.schema(inspect.type_info(described), keeps_unknown=True))
            case inspect.Metadata(extra={"pattern": pattern}):
                # For the API server alone: our own check has a better sentence for what does not match.
                return self.schema(type_.type, keeps_unknown=keeps_unknown) | {"pattern": pattern}
            case inspect.Metadata(extra={"openapi": keywords}):
                # For the API server alone: a stored status that does not fit is still read.
                is_anything = isinstance(type_.type, inspect.AnyType)
                return {**({} if is_anything else self.schema(type_.type, keeps_unknown=keeps_unknown)), **keywords}
            case inspect.Metadata(extra={"default": default}):
                return self.schema(type_.type, keeps_unknown=keeps_unknown) | {"default": default}
            case inspect.UnionType(types=(inspect.IntType(), inspect.StrType())):
                return {"x-kubernetes-int-or-string": True}  # an amount, as Kubernetes takes them
            case inspect.UnionType(types=(one, inspect.NoneType())):
                # Absent is None; the API server drops an explicit null before it looks at the schema.
                return self.schema(one, keeps_unknown=keeps_unknown)
            case inspect.StructType():
                return self._object(type_, keeps_unknown=keeps_unknown)
            case inspect.DictType():
                values = self.schema(type_.value_type, keeps_unknown=keeps_unknown)
                return {"type": "object", "additionalProperties": values, **_bounds(type_, "Properties")}
            case inspect.ListType() | inspect.VarTupleType():
                items = self.schema(type_.item_type, keeps_unknown=keeps_unknown)
                return {"type": "array", "items": items, **_bounds(type_, "Items"), **_list_key(type_.item_type)}
        return _scalar(type_)

    def _object(self, type_: inspect.StructType, *, keeps_unknown: bool) -> Schema:
        schema: Schema = {"type": "object"}
        if required := [field.encode_name for field in type_.fields if field.required]:
            schema["required"] = required
        texts = fields_of(type_.cls)
        schema["properties"] = {
            field.encode_name: _description(texts.get(field.name, ""), field)
            | self.schema(field.type, keeps_unknown=keeps_unknown)
            | _validations(self._rules.get((type_.cls, field.encode_name), ()))
            for field in type_.fields
        }
        if keeps_unknown:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return schema | _validations(self._rules.get(type_.cls, ()))


def _description(text: str, field: inspect.Field) -> Schema:
    """With the default of the type. The schema itself has none: the API server would write it into stored jobs."""
    has_default = isinstance(field.default, str | int) and field.default
    sentences = [text, f"Default: {field.default}."] if has_default else [text]
    return {"description": " ".join(sentences)} if text else {}


def _atomic(schema: Schema) -> Schema:
    """A template is applied as a whole. Field by field the API server would keep managed fields that are longer than
    the template, and read and write them with every status."""
    return schema | {"x-kubernetes-map-type": "atomic"} if schema["type"] == "object" else schema


def _validations(rules: Sequence[Rule]) -> Schema:
    return {"x-kubernetes-validations": [_validation(rule) for rule in rules]} if rules else {}


def _validation(rule: Rule) -> Schema:
    validation: Schema = {"rule": rule.rule, **_given(fieldPath=rule.path or None), "message": rule.message}
    if "oldSelf" in rule.rule and not rule.is_about_changes:
        # Without it the API server treats every rule with oldSelf as one about updates alone.
        validation["optionalOldSelf"] = True
    return validation | ({"messageExpression": rule.detail} if rule.detail else {})


def _scalar(type_: inspect.Type) -> Schema:
    match type_:
        case inspect.StrType():
            return {"type": "string", **_bounds(type_, "Length"), **_given(pattern=type_.pattern)}
        case inspect.LiteralType():
            return {"type": "string", "enum": list(type_.values)}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case inspect.IntType():
            width = "int32" if type_.le is not None and type_.le <= INT32_MAX else "int64"
            return {"type": "integer", "format": width, **_given(minimum=type_.ge, maximum=type_.le)}
    raise TypeError(f"{type_} has no schema: say how it looks on the wire with Meta(extra={{'schema': ...}})")


def _bounds(type_: Any, noun: str) -> Schema:
    return _given(**{f"min{noun}": type_.min_length, f"max{noun}": type_.max_length})


def _given(**keywords: Any) -> Schema:
    return {keyword: value for keyword, value in keywords.items() if value is not None}


def _list_key(item: inspect.Type) -> Schema:
    if isinstance(item, inspect.StructType) and item.cls in _KEYED:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    return {}
