"""CustomResourceDefinitions, generated from the wire types: what a decoder accepts and what the API server stores
cannot drift apart.

A schema says what it can: shapes, ranges and words. CEL says the rest as far as its cost limits allow, in the same
sentences as ``kinds/*/validate.py``, which checks a job that got in before the rules did. Pod templates name the
fields that we read and keep all others, so a definition stays small enough for ``kubectl apply``.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from msgspec import inspect

from trainmaster.api import aggregatorconfig, aitrainingjob, dijob, nervexjob
from trainmaster.core.ids import Resource
from trainmaster.core.name import MAX_LABEL
from trainmaster.core.template import ContainerPart, VolumePart

Schema = dict[str, Any]

INT32_MAX = 2**31 - 1


class Column(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A column of ``kubectl get``; from priority 1 on only with ``-o wide``."""

    name: str
    type: str
    json_path: str
    priority: int = 0


class Rule(msgspec.Struct, frozen=True):
    """A CEL rule, with ``oldSelf`` as an optional.

    ``detail`` is a CEL expression that names the culprit; ``message`` stands in where it cannot be evaluated.
    """

    rule: str
    path: str
    message: str
    detail: str = ""


class Definition(msgspec.Struct, frozen=True):
    """What a definition says besides its schema; the rest of the names follow from the kind."""

    resource: Resource
    job: type[msgspec.Struct]
    short_name: str
    columns: tuple[Column, ...]


_PHASE = Column("Phase", "string", ".status.phase")
_AGE = Column("Age", "date", ".metadata.creationTimestamp")
# The last condition is the phase's own, with the sentence that says what the job waits for or died of.
_MESSAGE = Column("Message", "string", ".status.conditions[-1:].message", priority=1)

DEFINITIONS = (
    Definition(dijob.RESOURCE, dijob.DIJob, "dijob", (_PHASE, _AGE)),
    Definition(aitrainingjob.RESOURCE, aitrainingjob.AITrainingJob, "aitj", (_PHASE, _AGE, _MESSAGE)),
    Definition(aggregatorconfig.RESOURCE, aggregatorconfig.AggregatorConfig, "agconfig", (_AGE,)),
    Definition(nervexjob.RESOURCE, nervexjob.NerveXJob, "nvxjob", (_PHASE, _AGE)),
    Definition(nervexjob.AGGREGATOR_CONFIG, aggregatorconfig.AggregatorConfig, "agconfig", (_AGE,)),
)

# Lists of these are keyed by name, as they are in a pod: the API server refuses a name that occurs twice, and
# server-side apply merges by it. Not env: there a repeated name is legal, and the last one wins.
_KEYED: frozenset[type] = frozenset({ContainerPart, VolumePart})

# Every rule forgives what was stored before the rule existed, as long as it stays as it is: the operator must be able
# to write into the status of such a job what is wrong with it, and the garbage collector to take off its finalizers.
# The API server means to forgive by itself what did not change, but takes everything that holds a field unknown to
# the schema for changed, and no template is without one.
_NAME = "self.metadata.name"
_IS_OLD = "oldSelf.hasValue()"
_SERVICE_NAME = Rule(
    rule=f"{_IS_OLD} || {_NAME}.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    path=".metadata.name",
    message=(
        "must start with a letter and consist of lower-case letters, digits and '-': "
        "it becomes part of the names of services; rename the job"
    ),
)


def _child_name(suffix: str) -> Rule:
    """The job's name with the longest ending that a pod of it can have."""
    size = f"size({_NAME}) + size({suffix})"
    return Rule(
        rule=f"{_IS_OLD} || {size} <= {MAX_LABEL}",
        path=".metadata.name",
        message=f"is too long: the names of pods are made from it and may have {MAX_LABEL} characters",
        detail=(
            f"'is too long: \"%s%s\" would have %d characters, {MAX_LABEL} are allowed; shorten the name by %d'"
            f".format([{_NAME}, {suffix}, {size}, {size} - {MAX_LABEL}])"
        ),
    )


# A job of which one can ask for learners may get DDP learners.
_DIJOB = _child_name(
    "(has(self.spec) && has(self.spec.learner) ? '-ddp-learner-xxxxx' : "
    "has(self.spec) && has(self.spec.collector) ? '-collector-xxxxx' : '-coordinator')"
)
_NERVEXJOB = _child_name(
    "(has(self.spec) && has(self.spec.collector) ? '-collector-xxxxx' : "
    "has(self.spec) && has(self.spec.learner) ? '-learner-xxxxx' : '-coordinator')"
)

# In a loop over the names n of spec.replicaSpecs, seen from the job.
_COUNT = "self.spec.replicaSpecs[n].?replicas.orValue(1)"
_OLD_COUNT = "oldSelf.?spec.?replicaSpecs[?n].?replicas.orValue(1)"
# <job>-<replica>-<index>; a replica without pods is named as if it had one.
_CHILD_SIZE = f"size({_NAME}) + size(n) + 2 + size(string([{_COUNT} - 1, 0].max()))"

_AITRAININGJOB = (
    _SERVICE_NAME,
    Rule(
        rule=(
            f"!has(self.spec) || self.spec.replicaSpecs.all(n, {_CHILD_SIZE} <= {MAX_LABEL}"
            f" || oldSelf.?spec.?replicaSpecs[?n].hasValue() && {_OLD_COUNT} == {_COUNT})"
        ),
        path=".metadata.name",
        message=f"is too long: <job>-<replica>-<index> may have {MAX_LABEL} characters",
        detail=(
            f"'is too long: <job>-<replica>-<index> may have {MAX_LABEL} characters; shorten it or the name of %s'"
            f".format([self.spec.replicaSpecs.filter(n, {_CHILD_SIZE} > {MAX_LABEL})])"
        ),
    ),
)

# The same, seen from the spec.
_IS_OLD_NAME = "oldSelf.?replicaSpecs[?n].hasValue()"
_IS_NAME = "n.matches('^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$')"
_IS_UNIQUE = "self.replicaSpecs.exists_one(m, m.lowerAscii() == n.lowerAscii())"
_HAS_PODS = "self.replicaSpecs[n].?replicas.orValue(1) > 0"
_HAD_PODS = "oldSelf.?replicaSpecs[?n].?replicas.orValue(1) > 0"

_AITRAININGJOB_SPEC = (
    Rule(
        rule=f"self.replicaSpecs.all(n, {_IS_NAME} || {_IS_OLD_NAME})",
        path=".replicaSpecs",
        message="a replica name consists of letters, digits and '-' and starts with a letter",
        detail=(
            "\"%s: a replica name consists of letters, digits and '-' and starts with a letter\""
            f".format([self.replicaSpecs.filter(n, !{_IS_NAME})])"
        ),
    ),
    Rule(
        rule=f"self.replicaSpecs.all(n, {_IS_UNIQUE} || {_IS_OLD_NAME})",
        path=".replicaSpecs",
        message="two names differ only in case; rename one of them",
        detail=f"'%s differ only in case; rename all but one'.format([self.replicaSpecs.filter(n, !{_IS_UNIQUE})])",
    ),
    Rule(
        rule=f"self.replicaSpecs.exists(n, {_HAS_PODS}) || {_IS_OLD} && !self.replicaSpecs.exists(n, {_HAD_PODS})",
        path=".replicaSpecs",
        message="no replica has a pod; set replicas of at least one to 1 or more",
    ),
)


def _bound(field: str, sign: str, wrong: str) -> Rule:
    count, old_count = "self.?replicas.orValue(1)", "oldSelf.?replicas.orValue(1)"
    is_same = f"oldSelf.?{field}.orValue(-1) == self.{field} && {old_count} == {count}"
    return Rule(
        rule=f"!has(self.{field}) || self.{field} {sign} {count} || {is_same}",
        path=f".{field}",
        message=f"is {wrong} than replicas",
        detail=f"'%d is {wrong} than replicas (%d)'.format([self.{field}, {count}])",
    )


RULES: Mapping[type, tuple[Rule, ...]] = {
    dijob.DIJob: (_SERVICE_NAME, _DIJOB),
    nervexjob.NerveXJob: (_SERVICE_NAME, _NERVEXJOB),
    aitrainingjob.AITrainingJob: _AITRAININGJOB,
    aitrainingjob.AITrainingJobSpec: _AITRAININGJOB_SPEC,
    aitrainingjob.ReplicaSpec: (_bound("minReplicas", "<=", "more"), _bound("maxReplicas", ">=", "less")),
}


def crd(definition: Definition) -> dict[str, Any]:
    """One CustomResourceDefinition, ready for ``kubectl apply``."""
    resource = definition.resource
    kind = resource.kind
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [msgspec.to_builtins(column) for column in definition.columns],
        "schema": {"openAPIV3Schema": _root(definition.job)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(resource)},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": resource.plural,
                "singular": kind.lower(),
                "shortNames": [definition.short_name],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def all_crds() -> tuple[dict[str, Any], ...]:
    """The definitions of all kinds, always in the same order."""
    return tuple(crd(definition) for definition in DEFINITIONS)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True  # anchors are legal, but nobody wants to read them in a diff


def to_yaml() -> str:
    """All definitions as one manifest: what ``trainmaster crds`` prints and deploy/crds.yaml holds."""
    documents = yaml.dump_all(all_crds(), Dumper=_Dumper, explicit_start=True, sort_keys=False, width=118)
    return f"# Generated from src/trainmaster/api: change it there, then run `make generate`.\n{documents}"


def _root(job: type[msgspec.Struct]) -> Schema:
    """The whole object. The API server knows the metadata; naming ``name`` lets rules point at it."""
    schema = _schema(inspect.type_info(job), keeps_unknown=False)
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **schema["properties"],
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    schema["required"].remove("metadata")
    return schema


def _schema(type_: inspect.Type, *, keeps_unknown: bool) -> Schema:
    match type_:
        case inspect.Metadata(extra={"schema": described}):
            return _schema(inspect.type_info(described), keeps_unknown=True)
        case inspect.UnionType(types=(one, inspect.NoneType())):
            # Absent is None; the API server drops an explicit null before it looks at the schema.
            return _schema(one, keeps_unknown=keeps_unknown)
        case inspect.StructType():
            return _object(type_, keeps_unknown=keeps_unknown)
        case inspect.DictType():
            values = _schema(type_.value_type, keeps_unknown=keeps_unknown)
            return {"type": "object", "additionalProperties": values, **_bounds(type_, "Properties")}
        case inspect.ListType() | inspect.VarTupleType():
            items = _schema(type_.item_type, keeps_unknown=keeps_unknown)
            return {"type": "array", "items": items, **_bounds(type_, "Items"), **_list_key(type_.item_type)}
    return _scalar(type_)


def _object(type_: inspect.StructType, *, keeps_unknown: bool) -> Schema:
    schema: Schema = {"type": "object"}
    # Inside a template the docstrings speak to us, not to the user.
    if type_.cls.__doc__ and not keeps_unknown:
        schema["description"] = " ".join(type_.cls.__doc__.split())
    if required := [field.encode_name for field in type_.fields if field.required]:
        schema["required"] = required
    schema["properties"] = {
        field.encode_name: _schema(field.type, keeps_unknown=keeps_unknown) for field in type_.fields
    }
    if keeps_unknown:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if rules := RULES.get(type_.cls):
        schema["x-kubernetes-validations"] = [_validation(rule) for rule in rules]
    return schema


def _validation(rule: Rule) -> Schema:
    validation = {
        "rule": rule.rule,
        # Without it the API server takes every rule that says oldSelf for one about updates alone.
        "optionalOldSelf": True,
        "fieldPath": rule.path,
        "message": rule.message,
    }
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
