"""CustomResourceDefinition of DIJob: one schema for both versions, and what the rules require of v2alpha1."""

import msgspec

from trainmaster.core.name import MAX_LABEL
from trainmaster.kinds.base import SHAPE_CHANGED
from trainmaster.kinds.definition import (
    AGE,
    DIGITS,
    IS_OLD,
    MANAGED_BY,
    NAME,
    PHASE,
    SERVICE_NAME,
    SUMMARY,
    Column,
    Definition,
    Scale,
    Version,
    few_replicas,
)
from trainmaster.kinds.dijob.crd import DIJOB_NAME
from trainmaster.kinds.dijob.validate import SHAPE
from trainmaster.kinds.ditask import validate
from trainmaster.kinds.ditask.types import RESOURCE, VERSION, UnionJob, UnionSpec
from trainmaster.kinds.schema import Rule

# In a loop over the tasks t. A task without a name is called like its type. The API server evaluates the rules with
# every status write, and needs most of that time to read fields: so each rule reads a field of a task once.
_TYPE = "t.?type.orValue('none')"
_NAME = "t.?name.orValue('')"
_TASK = f"({_NAME} == '' ? {_TYPE} : t.name)"
_COUNT = "t.?replicas.orValue(1)"
_IS_SCALED = f"(has(self.scaledTask) && self.scaledTask != '' ? {_TASK} == self.scaledTask : {_TYPE} == 'collector')"


def _rule(holds: str, message: str, path: str = ".tasks", detail: str = "") -> Rule:
    """A rule for jobs with tasks. A stored job that broke it before may go on breaking it."""
    before = holds.replace("self.", "oldSelf.value().")
    rule = f"!has(self.tasks) || {holds} || {IS_OLD} && has(oldSelf.value().tasks) && !({before})"
    return Rule(rule=rule, path=path, message=message, detail=detail)


def _bound(field: str, sign: str, wrong: str) -> Rule:
    bad = f"self.tasks.filter(t, has(t.{field}) && !(t.{field} {sign} {_COUNT}))"
    return _rule(
        f"self.tasks.all(t, !has(t.{field}) || t.{field} {sign} {_COUNT})",
        f"{field} is {wrong} than replicas",
        detail=f"'%s: {field} is {wrong} than replicas'.format([{bad}.map(t, {_TASK})])",
    )


def _scale_bound(field: str, sign: str, wrong: str) -> Rule:
    holds = f"self.tasks.all(t, !{_IS_SCALED} || !has(t.{field}) || self.replicas {sign} t.{field})"
    return _rule(f"(!has(self.replicas) || {holds})", f"is {wrong} than {field} of the scaled task", ".replicas")


_MOST = f"[{_COUNT}, t.?maxReplicas.orValue(0), {_IS_SCALED} ? self.?replicas.orValue(0) : 0].max()"
_SPEC = (
    Rule(
        rule=(
            "has(self.coordinator) != has(self.tasks)"
            f" || {IS_OLD} && has(oldSelf.value().coordinator) == has(oldSelf.value().tasks)"
        ),
        message=SHAPE,
    ),
    Rule(
        rule="has(self.tasks) == has(oldSelf.tasks)",
        message=SHAPE_CHANGED,
        is_about_changes=True,
    ),
    _rule(
        f"self.tasks.all(t, {_TYPE} != 'none' || {_NAME} != '')",
        validate.NAMELESS,
    ),
    _rule(
        # The API server knows how long t.name can be, and not how long an optional value can be.
        "self.tasks.all(t, !has(t.name) || t.name.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$'))",
        validate.BAD_NAME,
    ),
    _rule(
        f"[self.tasks.map(t, {_TASK})].all(names, names.all(n, names.exists_one(m, m == n)))",
        validate.DUPLICATE,
        detail=(
            f"'%s: {validate.DUPLICATE}'.format([self.tasks.map(t, {_TASK})"
            f".filter(n, !self.tasks.exists_one(t, {_TASK} == n))])"
        ),
    ),
    _rule(
        f"[self.tasks.map(t, {_TYPE})].all(types, types.all(k, k == 'none' || types.exists_one(m, m == k)))",
        validate.TYPE_TWICE,
    ),
    _bound("minReplicas", "<=", "more"),
    _bound("maxReplicas", ">=", "less"),
    _rule(
        f"(!has(self.replicas) && !has(self.scaledTask) || self.tasks.exists(t, {_IS_SCALED}))",
        validate.NO_SCALED_TASK,
        ".scaledTask",
    ),
    _scale_bound("minReplicas", ">=", "less"),
    _scale_bound("maxReplicas", "<=", "more"),
    few_replicas(f"(has(self.tasks) ? self.tasks.map(t, {_MOST}) : [0])", ".tasks", "replicas or maxReplicas"),
    MANAGED_BY,
)

_CHILD_SIZE = f"size({NAME}) + size({_TASK}) + 2 + size(string({_MOST.replace('self.', 'self.spec.')} - 1))"
_FITS = (
    f"self.spec.tasks.all(t, size({NAME}) + size({_TASK}) <= {MAX_LABEL - 2 - DIGITS} || {_CHILD_SIZE} <= {MAX_LABEL})"
)
# The one service of a job with tasks is called di-<job>.
_HAS_SERVICE_NAME = f"has(self.spec) && has(self.spec.tasks) && {NAME}.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"
_JOB = (
    msgspec.structs.replace(SERVICE_NAME, rule=f"{SERVICE_NAME.rule} || {_HAS_SERVICE_NAME}"),
    DIJOB_NAME,
    Rule(
        # Of edits it would cost too much: these are left to the operator's own check.
        rule=f"{IS_OLD} || !has(self.spec) || !has(self.spec.tasks) || {_FITS}",
        path=".metadata.name",
        message=validate.TOO_LONG,
        detail=(
            f"'{validate.TOO_LONG}; shorten it or the name of %s'"
            f".format([self.spec.tasks.filter(t, {_CHILD_SIZE} > {MAX_LABEL}).map(t, {_TASK})])"
        ),
    ),
)

DEFINITION = Definition(
    resource=RESOURCE,
    job=UnionJob,
    short_name="dijob",
    columns=(PHASE, AGE, *SUMMARY),
    other_versions=(
        Version(
            VERSION,
            (
                PHASE,
                Column("ReadyReplicas", "integer", ".status.readyReplicas"),
                Column("Replicas", "integer", ".status.replicas"),
                # The same as .status.restarts, which is not a number in jobs with a coordinator.
                Column("Restarts", "integer", ".status.summary.restarts"),
                Column("Reschedules", "integer", ".status.reschedules"),
                AGE,
                SUMMARY[-1],
            ),
        ),
    ),
    scale=Scale(".spec.replicas", ".status.scaledReplicas", ".status.selector"),
    rules={UnionJob: _JOB, UnionSpec: _SPEC},
)
