"""CustomResourceDefinition of AITrainingJob."""

from trainmaster.core.name import MAX_LABEL
from trainmaster.kinds.aitrainingjob.types import RESOURCE, AITrainingJob, AITrainingJobSpec, ReplicaSpec
from trainmaster.kinds.definition import (
    AGE,
    DIGITS,
    IS_OLD,
    IS_OLD_NAME,
    MANAGED_BY,
    NAME,
    PHASE,
    SERVICE_NAME,
    SUMMARY,
    UNIQUE_NAMES,
    Definition,
    Scale,
    few_replicas,
)
from trainmaster.kinds.schema import Rule

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
_CHILD_SIZE = f"size({NAME}) + size(n) + 2 + size(string([{_MOST} - 1, 0].max()))"

_JOB = (
    SERVICE_NAME,
    Rule(
        rule=(
            f"!has(self.spec) || self.spec.replicaSpecs.all(n, size({NAME}) + size(n) <= {MAX_LABEL - 2 - DIGITS}"
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
_IS_NAME = "n.matches('^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$')"
_HAS_PODS = "self[n].?replicas.orValue(1) > 0"
_HAD_PODS = "oldSelf[?n].?replicas.orValue(1) > 0"

_REPLICA_SPECS = (
    Rule(
        rule=f"self.all(n, {_IS_NAME} || {IS_OLD_NAME})",
        message="a replica name consists of letters, digits and '-' and starts with a letter",
        detail=(
            "\"%s: a replica name consists of letters, digits and '-' and starts with a letter\""
            f".format([self.filter(n, !{_IS_NAME})])"
        ),
    ),
    UNIQUE_NAMES,
    Rule(
        rule=f"self.exists(n, {_HAS_PODS}) || {IS_OLD} && !self.exists(n, {_HAD_PODS})",
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

_SPEC = (
    few_replicas(f"self.replicaSpecs.map(n, {_MOST_OF_ROLE})", ".replicaSpecs", "replicas or maxReplicas"),
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


DEFINITION = Definition(
    resource=RESOURCE,
    job=AITrainingJob,
    short_name="aitj",
    columns=(PHASE, AGE, *SUMMARY),
    scale=Scale(".spec.elasticReplicas", ".status.elasticReplicas", ".status.selector"),
    rules={
        AITrainingJob: _JOB,
        AITrainingJobSpec: (*_SPEC, MANAGED_BY),
        (AITrainingJobSpec, "replicaSpecs"): _REPLICA_SPECS,
        ReplicaSpec: (_bound("minReplicas", "<=", "more"), _bound("maxReplicas", ">=", "less")),
    },
)
