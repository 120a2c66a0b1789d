"""CustomResourceDefinitions, generated from the wire types: what a decoder accepts and what the API server stores
cannot drift apart.

A schema says what it can: shapes, ranges and words. CEL says the rest as far as its cost limits allow, in the same
sentences as ``kinds/*/validate.py``, which checks a job that got in before the rules did. Pod templates name the
fields that we read and keep all others, so a definition stays small enough for ``kubectl apply``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml
from msgspec import inspect

from trainmaster.core.ids import Resource
from trainmaster.core.name import MAX_LABEL
from trainmaster.core.plan import MAX_REPLICAS
from trainmaster.core.template import ContainerPart, VolumePart
from trainmaster.kinds.aitrainingjob import types as aitrainingjob
from trainmaster.kinds.dijob import aggregatorconfig, nervexjob
from trainmaster.kinds.dijob import types as dijob
from trainmaster.kinds.mlkube import types as mlkube
from trainmaster.kinds.mxjob import types as mxjob

Schema = dict[str, Any]

INT32_MAX = 2**31 - 1
DIGITS = 4
"""Of the highest index: no replica may have more than 10 000 pods."""


class Column(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A column of ``kubectl get``; from priority 1 on only with ``-o wide``."""

    name: str
    type: str
    json_path: str
    priority: int = 0


class Rule(msgspec.Struct, frozen=True):
    """A CEL rule, with ``oldSelf`` as an optional, unless it is about changes alone: then nobody who creates a job
    pays for it.

    ``detail`` is a CEL expression that names the culprit; ``message`` stands in where it cannot be evaluated.
    """

    rule: str
    message: str
    path: str = ""
    """From where the rule stands to what is wrong."""
    detail: str = ""
    is_about_changes: bool = False


class Scale(msgspec.Struct, frozen=True, rename="camel"):
    """Where a number of replicas stands that ``kubectl scale`` and autoscalers may change."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str


class Definition(msgspec.Struct, frozen=True):
    """What a definition says besides its schema; the rest of the names follow from the kind. Not every ancestor had a
    short name."""

    resource: Resource
    job: type[msgspec.Struct]
    short_name: str
    columns: tuple[Column, ...]
    scale: Scale | None = None


_PHASE = Column("Phase", "string", ".status.phase")
# Kubeflow's word for it.
_STATE = Column("State", "string", ".status.phase")
_AGE = Column("Age", "date", ".metadata.creationTimestamp")
# The last condition is the phase's own, with the sentence that says what the job waits for or died of.
_MESSAGE = Column("Message", "string", ".status.conditions[-1:].message", priority=1)

_MLKUBE_COLUMNS = (
    Column("Mode", "string", ".spec.jobMode"),
    _PHASE,
    Column("State", "string", ".status.state"),
    _AGE,
    Column("Reason", "string", ".status.reason", priority=1),
)

DEFINITIONS = (
    Definition(dijob.RESOURCE, dijob.DIJob, "dijob", (_PHASE, _AGE)),
    Definition(
        aitrainingjob.RESOURCE,
        aitrainingjob.AITrainingJob,
        "aitj",
        (_PHASE, _AGE, _MESSAGE),
        Scale(".spec.elasticReplicas", ".status.elasticReplicas", ".status.selector"),
    ),
    Definition(aggregatorconfig.RESOURCE, aggregatorconfig.AggregatorConfig, "agconfig", (_AGE,)),
    Definition(nervexjob.RESOURCE, nervexjob.NerveXJob, "nvxjob", (_PHASE, _AGE)),
    Definition(nervexjob.AGGREGATOR_CONFIG, aggregatorconfig.AggregatorConfig, "agconfig", (_AGE,)),
    Definition(mlkube.RESOURCE, mlkube.MxJob, "mxj", _MLKUBE_COLUMNS),
    Definition(mlkube.FIRST_RESOURCE, mlkube.FirstMxJob, "mlmxj", _MLKUBE_COLUMNS),
    Definition(mxjob.RESOURCE, mxjob.MXJob, "", (_STATE, _AGE, _MESSAGE)),
)

# Lists of these are keyed by name, as they are in a pod: the API server refuses a name that occurs twice. Not env:
# there a repeated name is legal, and the last one wins.
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


_MANAGED_BY = Rule(
    rule=(
        "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)"
    ),
    path=".managedBy",
    message="is settled when the job is created; create it anew to change who drives it",
    is_about_changes=True,
)


def _few_replicas(counts: str, path: str, fields: str = "replicas") -> Rule:
    """The replicas of all roles together; ``counts`` is a list of numbers, seen from the spec. A job that was stored
    with more may keep them, or have fewer. Seen from the map of roles itself the rule would be refused: the API server
    does not know how many entries ``oldSelf.value()`` can have."""
    total, old_total = f"{counts}.sum()", f"{counts.replace('self', 'oldSelf.value()')}.sum()"
    limit = f"and a job may have {MAX_REPLICAS}; lower {fields}"
    return Rule(
        rule=f"{total} <= {MAX_REPLICAS} || {_IS_OLD} && {total} <= {old_total}",
        path=path,
        message=f"the replicas of all roles add up to too many, {limit}",
        detail=f"'the replicas of all roles add up to %d, {limit}'.format([{total}])",
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
# Where the number may change, the most that there can be.
_SCALED, _OLD_SCALED = "self.spec.?elasticReplicas.orValue(0)", "oldSelf.?spec.?elasticReplicas.orValue(0)"
_MOST = (
    f"(self.spec.replicaSpecs[n].?edlPolicy.orValue('Never') == 'Never' ? {_COUNT} : "
    f"[{_COUNT}, self.spec.replicaSpecs[n].?maxReplicas.orValue(0), {_SCALED}].max())"
)
# <job>-<replica>-<index>; a replica without pods is named as if it had one.
_CHILD_SIZE = f"size({_NAME}) + size(n) + 2 + size(string([{_MOST} - 1, 0].max()))"

_AITRAININGJOB = (
    _SERVICE_NAME,
    Rule(
        rule=(
            f"!has(self.spec) || self.spec.replicaSpecs.all(n, size({_NAME}) + size(n) <= {MAX_LABEL - 2 - DIGITS}"
            f" || {_CHILD_SIZE} <= {MAX_LABEL}"
            f" || oldSelf.?spec.?replicaSpecs[?n].hasValue() && {_OLD_COUNT} == {_COUNT} && {_OLD_SCALED} == {_SCALED})"
        ),
        path=".metadata.name",
        message=f"is too long: <job>-<replica>-<index> may have {MAX_LABEL} characters",
        detail=(
            f"'is too long: <job>-<replica>-<index> may have {MAX_LABEL} characters; shorten it or the name of %s'"
            f".format([self.spec.replicaSpecs.filter(n, {_CHILD_SIZE} > {MAX_LABEL})])"
        ),
    ),
)

# The same, seen from the replicas.
_IS_OLD_NAME = "oldSelf[?n].hasValue()"
_IS_NAME = "n.matches('^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$')"
_IS_UNIQUE = "self.exists_one(m, m.lowerAscii() == n.lowerAscii())"
_HAS_PODS = "self[n].?replicas.orValue(1) > 0"
_HAD_PODS = "oldSelf[?n].?replicas.orValue(1) > 0"

_UNIQUE_NAMES = Rule(
    rule=f"self.all(n, {_IS_UNIQUE} || {_IS_OLD_NAME})",
    message="two names differ only in case; rename one of them",
    detail=f"'%s differ only in case; rename all but one'.format([self.filter(n, !{_IS_UNIQUE})])",
)

_REPLICA_SPECS = (
    Rule(
        rule=f"self.all(n, {_IS_NAME} || {_IS_OLD_NAME})",
        message="a replica name consists of letters, digits and '-' and starts with a letter",
        detail=(
            "\"%s: a replica name consists of letters, digits and '-' and starts with a letter\""
            f".format([self.filter(n, !{_IS_NAME})])"
        ),
    ),
    _UNIQUE_NAMES,
    Rule(
        rule=f"self.exists(n, {_HAS_PODS}) || {_IS_OLD} && !self.exists(n, {_HAD_PODS})",
        message="no replica has a pod; set replicas of at least one to 1 or more",
    ),
)

_IS_SCALED = "has(self.elasticReplicas)"
_ELASTIC = "self.replicaSpecs.filter(n, self.replicaSpecs[n].?edlPolicy.orValue('Never') != 'Never')"


def _scaled(field: str, sign: str, wrong: str) -> Rule:
    """What the elastic replica is scaled to lies within its bounds."""
    bound = f"self.replicaSpecs[n].?{field}.orValue(self.elasticReplicas)"
    return Rule(
        rule=f"!{_IS_SCALED} || {_ELASTIC}.all(n, self.elasticReplicas {sign} {bound})",
        path=".elasticReplicas",
        message=f"is {wrong} than {field}",
        detail=(
            f"'%d is {wrong} than {field} of %s (%d)'.format([self.elasticReplicas, {_ELASTIC}[0], "
            f"self.replicaSpecs[{_ELASTIC}[0]].{field}])"
        ),
    )


_ROLE = "self.replicaSpecs[n]"
_MOST_OF_ROLE = (
    f"{_ROLE}.?edlPolicy.orValue('Never') == 'Never' ? {_ROLE}.?replicas.orValue(1) : "
    f"[{_ROLE}.?replicas.orValue(1), {_ROLE}.?maxReplicas.orValue(0), self.?elasticReplicas.orValue(0)].max()"
)

_AITRAININGJOB_SPEC = (
    _few_replicas(f"self.replicaSpecs.map(n, {_MOST_OF_ROLE})", ".replicaSpecs", "replicas or maxReplicas"),
    Rule(
        rule=f"!{_IS_SCALED} || {_ELASTIC}.size() == 1",
        path=".elasticReplicas",
        message="scales the one replica whose edlPolicy is Auto or Manual; set the replicas of each by itself",
        detail=(
            "'scales the one replica whose edlPolicy is Auto or Manual, and there are %d: "
            f"set the replicas of each by itself'.format([{_ELASTIC}.size()])"
        ),
    ),
    _scaled("minReplicas", ">=", "less"),
    _scaled("maxReplicas", "<=", "more"),
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


# In a loop over the names n of spec.mxReplicaSpecs, which are read in any case.
_MX_ROLE = "n.lowerAscii()"
_MX_MODE = "(self.jobMode == 'MXTune' ? ['tunertracker', 'tunerserver', 'tuner'] : ['scheduler', 'server', 'worker'])"
_MX_IS_SINGLE = f"{_MX_ROLE} in ['scheduler', 'tunertracker']"
_MX_COUNT, _MX_OLD_COUNT = "self[n].?replicas.orValue(1)", "oldSelf[?n].?replicas.orValue(1)"

_MXJOB_SPEC = (
    _few_replicas("self.mxReplicaSpecs.map(n, self.mxReplicaSpecs[n].?replicas.orValue(1))", ".mxReplicaSpecs"),
    Rule(
        rule=f"self.mxReplicaSpecs.all(n, {_MX_ROLE} in {_MX_MODE} || oldSelf.?mxReplicaSpecs[?n].hasValue())",
        path=".mxReplicaSpecs",
        message="MXTrain has Scheduler, Server and Worker; MXTune has TunerTracker, TunerServer and Tuner",
        detail=(
            f"'%s has no role %s'.format([self.jobMode, self.mxReplicaSpecs.filter(n, !({_MX_ROLE} in {_MX_MODE}))])"
        ),
    ),
)
_MX_REPLICA_SPECS = (
    _UNIQUE_NAMES,
    Rule(
        rule=f"self.size() == 3 || self.size() == 1 && self.exists(n, {_MX_ROLE} == 'worker') || {_IS_OLD}",
        message=(
            "MXTrain needs a Scheduler, a Server and a Worker, or Workers alone; "
            "MXTune needs a TunerTracker, a TunerServer and a Tuner"
        ),
    ),
    Rule(
        rule=(
            f"self.all(n, !({_MX_IS_SINGLE}) || {_MX_COUNT} == 1 || {_IS_OLD_NAME} && {_MX_OLD_COUNT} == {_MX_COUNT})"
        ),
        message="there is one Scheduler or TunerTracker in a job; set its replicas to 1",
    ),
)
_MX_JOB_COUNT = "self.spec.mxReplicaSpecs[n].?replicas.orValue(1)"
_MX_CHILD_SIZE = f"size({_NAME}) + size(n) + 2 + size(string({_MX_JOB_COUNT} - 1))"
_MXJOB = (
    _SERVICE_NAME,
    Rule(
        rule=(
            f"!has(self.spec) || self.spec.mxReplicaSpecs.all(n, size({_NAME}) + size(n) <= {MAX_LABEL - 2 - DIGITS}"
            f" || {_MX_CHILD_SIZE} <= {MAX_LABEL}"
            f" || oldSelf.?spec.?mxReplicaSpecs[?n].?replicas.orValue(1) == {_MX_JOB_COUNT} && {_IS_OLD})"
        ),
        path=".metadata.name",
        message=f"is too long: <job>-<role>-<index> may have {MAX_LABEL} characters",
        detail=(
            f"'is too long: <job>-<role>-<index> may have {MAX_LABEL} characters, too few for %s'"
            f".format([self.spec.mxReplicaSpecs.filter(n, {_MX_CHILD_SIZE} > {MAX_LABEL})])"
        ),
    ),
)


# In a loop over the entries r of an MxJob's replicaSpecs.
_TYPE = "r.?mxReplicaType.orValue('WORKER')"
_SIZE = "r.?replicas.orValue(1)"
_TOLD = "r.?restartScope.orValue('All'), string(r.?PsRootPort.orValue(9091))"
_MEMBERS = f"map(r, [{_TYPE}, string({_SIZE}), {_TOLD}])"
_HAS_MAIN = "r.template.spec.containers.exists(c, c.name == 'mxnet')"
# <job>-<type>-<runtime id>-<index>
_RUNTIME_ID = "size(self.spec.?RuntimeId.orValue('') == '' ? 'xxxx' : self.spec.RuntimeId)"
_BATCH_JOB_SIZE = f"size({_NAME}) + size({_TYPE}) + {_RUNTIME_ID} + 3 + size(string({_SIZE} - 1))"

_MLKUBE = (
    msgspec.structs.replace(_SERVICE_NAME, rule=f"self.?spec.?jobMode.orValue('') == 'local' || {_SERVICE_NAME.rule}"),
    Rule(
        rule=(
            f"{_IS_OLD} || size({_NAME}) <= {MAX_LABEL - len('-SCHEDULER-') - mlkube.MAX_RUNTIME_ID - 1 - DIGITS} "
            f"|| !has(self.spec) || self.spec.replicaSpecs.all(r, {_BATCH_JOB_SIZE} <= {MAX_LABEL})"
        ),
        path=".metadata.name",
        message=f"is too long: <job>-<type>-<runtime id>-<index> may have {MAX_LABEL} characters",
    ),
    Rule(
        rule=(
            "oldSelf.?status.?runtimeId.orValue('') == '' || (oldSelf.spec.jobMode == self.spec.jobMode"
            f" && oldSelf.spec.replicaSpecs.{_MEMBERS} == self.spec.replicaSpecs.{_MEMBERS})"
        ),
        path=".spec.replicaSpecs",
        message=(
            "jobMode, types, replicas, restartScope and PsRootPort of a job that has begun stay as they are, because "
            "ps-lite counts its members when it starts; delete the job and create it anew"
        ),
        is_about_changes=True,
    ),
)

_MLKUBE_SPEC = (
    Rule(
        rule=(
            f"{_IS_OLD} || self.jobMode != 'local' || size(self.replicaSpecs) == 1 && "
            f"self.replicaSpecs.all(r, {_TYPE} == 'WORKER' && {_SIZE} == 1)"
        ),
        path=".replicaSpecs",
        message="jobMode local has one WORKER with replicas 1 and nothing else; use jobMode dist",
    ),
    Rule(
        rule=(
            f"{_IS_OLD} || self.jobMode != 'dist' || ['SCHEDULER', 'SERVER', 'WORKER'].all(t, "
            f"self.replicaSpecs.exists_one(r, {_TYPE} == t))"
        ),
        path=".replicaSpecs",
        message="jobMode dist has one entry each of SCHEDULER, SERVER and WORKER; add what is missing",
    ),
    _MANAGED_BY,
)
_MLKUBE_REPLICA_SPECS = (
    Rule(
        rule=f"{_IS_OLD} || self.all(r, {_TYPE} != 'SCHEDULER' || {_SIZE} == 1)",
        message="there is one SCHEDULER; set its replicas to 1",
    ),
    Rule(
        rule=f"{_IS_OLD} || self.all(r, {_HAS_MAIN})",
        message="every type needs a container that is called mxnet; rename the one that trains",
        detail=(
            "'template.spec.containers of %s: none is called mxnet; rename the one that trains'"
            f".format([self.filter(r, !{_HAS_MAIN}).map(r, {_TYPE})])"
        ),
    ),
)

RULES: Mapping[type, tuple[Rule, ...]] = {
    mxjob.MXJob: _MXJOB,
    mxjob.MXJobSpec: _MXJOB_SPEC,
    mxjob.RunPolicy: (_MANAGED_BY,),
    dijob.DIJob: (_SERVICE_NAME, _DIJOB),
    nervexjob.NerveXJob: (_SERVICE_NAME, _NERVEXJOB),
    aitrainingjob.AITrainingJob: _AITRAININGJOB,
    aitrainingjob.AITrainingJobSpec: (*_AITRAININGJOB_SPEC, _MANAGED_BY),
    dijob.DIJobSpec: (_MANAGED_BY,),
    mlkube.MxJob: _MLKUBE,
    mlkube.FirstMxJob: _MLKUBE,
    mlkube.MxJobSpec: _MLKUBE_SPEC,
    aitrainingjob.ReplicaSpec: (_bound("minReplicas", "<=", "more"), _bound("maxReplicas", ">=", "less")),
}
# Of fields. A rule stands as deep as it can: for each field that it asks an object for, the API server makes a list of
# all fields that such an object may have.
FIELD_RULES: Mapping[tuple[type, str], tuple[Rule, ...]] = {
    (aitrainingjob.AITrainingJobSpec, "replicaSpecs"): _REPLICA_SPECS,
    (mxjob.MXJobSpec, "mxReplicaSpecs"): _MX_REPLICA_SPECS,
    (mlkube.MxJobSpec, "replicaSpecs"): _MLKUBE_REPLICA_SPECS,
}


def crd(definition: Definition) -> dict[str, Any]:
    """One CustomResourceDefinition, ready for ``kubectl apply``."""
    resource = definition.resource
    kind = resource.kind
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} | ({"scale": msgspec.to_builtins(definition.scale)} if definition.scale else {}),
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
                **({"shortNames": [definition.short_name]} if definition.short_name else {}),
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
    return f"# Generated from src/trainmaster/kinds: change it there, then run `make generate`.\n{documents}"


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
            return _as_a_whole(_schema(inspect.type_info(described), keeps_unknown=True))
        case inspect.Metadata(extra={"pattern": pattern}):
            # For the API server alone: our own check has a better sentence for what does not match.
            return _schema(type_.type, keeps_unknown=keeps_unknown) | {"pattern": pattern}
        case inspect.Metadata(extra={"default": default}):
            return _schema(type_.type, keeps_unknown=keeps_unknown) | {"default": default}
        case inspect.UnionType(types=(inspect.IntType(), inspect.StrType())):
            return {"x-kubernetes-int-or-string": True}  # an amount, as Kubernetes takes them
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


def _as_a_whole(schema: Schema) -> Schema:
    """Whoever applies a template means all of it. Field by field the API server would keep a book of who set what that
    is longer than the template itself, and read and write it with every status."""
    return schema | {"x-kubernetes-map-type": "atomic"} if schema["type"] == "object" else schema


def _object(type_: inspect.StructType, *, keeps_unknown: bool) -> Schema:
    schema: Schema = {"type": "object"}
    # Inside a template the docstrings speak to us, not to the user.
    if type_.cls.__doc__ and not keeps_unknown:
        schema["description"] = " ".join(type_.cls.__doc__.split())
    if required := [field.encode_name for field in type_.fields if field.required]:
        schema["required"] = required
    schema["properties"] = {
        field.encode_name: _schema(field.type, keeps_unknown=keeps_unknown)
        | _validations(FIELD_RULES.get((type_.cls, field.encode_name), ()))
        for field in type_.fields
    }
    if keeps_unknown:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema | _validations(RULES.get(type_.cls, ()))


def _validations(rules: Sequence[Rule]) -> Schema:
    return {"x-kubernetes-validations": [_validation(rule) for rule in rules]} if rules else {}


def _validation(rule: Rule) -> Schema:
    validation: Schema = {"rule": rule.rule, **_given(fieldPath=rule.path or None), "message": rule.message}
    if "oldSelf" in rule.rule and not rule.is_about_changes:
        # Without it the API server takes every rule that says oldSelf for one about updates alone.
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
