"""CustomResourceDefinitions of MxJob, under both of its groups."""

import msgspec

from trainmaster.core.name import MAX_LABEL
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
)
from trainmaster.kinds.mlkube.types import FIRST_RESOURCE, MAX_RUNTIME_ID, RESOURCE, FirstMxJob, MxJob, MxJobSpec
from trainmaster.kinds.schema import Rule, Rules

_COLUMNS = (
    Column("Mode", "string", ".spec.jobMode"),
    PHASE,
    Column("State", "string", ".status.state"),
    AGE,
    *SUMMARY,
    Column("Reason", "string", ".status.reason", priority=1),
)

# In a loop over the entries r of an MxJob's replicaSpecs.
_TYPE = "r.?mxReplicaType.orValue('WORKER')"
_SIZE = "r.?replicas.orValue(1)"
_FIXED = "r.?restartScope.orValue('All'), string(r.?PsRootPort.orValue(9091))"
_MEMBERS = f"map(r, [{_TYPE}, string({_SIZE}), {_FIXED}])"
_HAS_MAIN = "r.template.spec.containers.exists(c, c.name == 'mxnet')"
# <job>-<type>-<runtime id>-<index>
_RUNTIME_ID = "size(self.spec.?RuntimeId.orValue('') == '' ? 'xxxx' : self.spec.RuntimeId)"
_BATCH_JOB_SIZE = f"size({NAME}) + size({_TYPE}) + {_RUNTIME_ID} + 3 + size(string({_SIZE} - 1))"

_JOB = (
    msgspec.structs.replace(SERVICE_NAME, rule=f"self.?spec.?jobMode.orValue('') == 'local' || {SERVICE_NAME.rule}"),
    Rule(
        rule=(
            f"{IS_OLD} || size({NAME}) <= {MAX_LABEL - len('-SCHEDULER-') - MAX_RUNTIME_ID - 1 - DIGITS} "
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

_SPEC = (
    Rule(
        rule=(
            f"{IS_OLD} || self.jobMode != 'local' || size(self.replicaSpecs) == 1 && "
            f"self.replicaSpecs.all(r, {_TYPE} == 'WORKER' && {_SIZE} == 1)"
        ),
        path=".replicaSpecs",
        message="jobMode local has one WORKER with replicas 1 and nothing else; use jobMode dist",
    ),
    Rule(
        rule=(
            f"{IS_OLD} || self.jobMode != 'dist' || ['SCHEDULER', 'SERVER', 'WORKER'].all(t, "
            f"self.replicaSpecs.exists_one(r, {_TYPE} == t))"
        ),
        path=".replicaSpecs",
        message="jobMode dist has one entry each of SCHEDULER, SERVER and WORKER; add what is missing",
    ),
    MANAGED_BY,
)
_REPLICA_SPECS = (
    Rule(
        rule=f"{IS_OLD} || self.all(r, {_TYPE} != 'SCHEDULER' || {_SIZE} == 1)",
        message="there is one SCHEDULER; set its replicas to 1",
    ),
    Rule(
        rule=f"{IS_OLD} || self.all(r, {_HAS_MAIN})",
        message="every type needs a container that is called mxnet; rename the one that trains",
        detail=(
            "'template.spec.containers of %s: none is called mxnet; rename the one that trains'"
            f".format([self.filter(r, !{_HAS_MAIN}).map(r, {_TYPE})])"
        ),
    ),
)

_SPEC_RULES: Rules = {MxJobSpec: _SPEC, (MxJobSpec, "replicaSpecs"): _REPLICA_SPECS}

DEFINITION = Definition(
    resource=RESOURCE, job=MxJob, short_name="mxj", columns=_COLUMNS, rules={MxJob: _JOB, **_SPEC_RULES}
)
FIRST_DEFINITION = Definition(
    resource=FIRST_RESOURCE,
    job=FirstMxJob,
    short_name="mlmxj",
    columns=_COLUMNS,
    rules={FirstMxJob: _JOB, **_SPEC_RULES},
)
