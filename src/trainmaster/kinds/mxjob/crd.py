"""CustomResourceDefinition of MXJob."""

from trainmaster.core.name import MAX_LABEL
from trainmaster.kinds.definition import (
    AGE,
    DIGITS,
    IS_OLD,
    IS_OLD_NAME,
    MANAGED_BY,
    NAME,
    SERVICE_NAME,
    STATE,
    SUMMARY,
    UNIQUE_NAMES,
    Definition,
    Version,
    few_replicas,
)
from trainmaster.kinds.mxjob.types import RESOURCE, MXJob, MXJobSpec
from trainmaster.kinds.run_policy import RunPolicy
from trainmaster.kinds.schema import Rule

# In a loop over the names n of spec.mxReplicaSpecs, which are read in any case.
_ROLE = "n.lowerAscii()"
_MODE = "(self.jobMode == 'MXTune' ? ['tunertracker', 'tunerserver', 'tuner'] : ['scheduler', 'server', 'worker'])"
_IS_SINGLE = f"{_ROLE} in ['scheduler', 'tunertracker']"
_COUNT, _OLD_COUNT = "self[n].?replicas.orValue(1)", "oldSelf[?n].?replicas.orValue(1)"

_SPEC = (
    few_replicas("self.mxReplicaSpecs.map(n, self.mxReplicaSpecs[n].?replicas.orValue(1))", ".mxReplicaSpecs"),
    Rule(
        rule=f"self.mxReplicaSpecs.all(n, {_ROLE} in {_MODE} || oldSelf.?mxReplicaSpecs[?n].hasValue())",
        path=".mxReplicaSpecs",
        message="MXTrain has Scheduler, Server and Worker; MXTune has TunerTracker, TunerServer and Tuner",
        detail=f"'%s has no role %s'.format([self.jobMode, self.mxReplicaSpecs.filter(n, !({_ROLE} in {_MODE}))])",
    ),
)
_REPLICA_SPECS = (
    UNIQUE_NAMES,
    Rule(
        rule=f"self.size() == 3 || self.size() == 1 && self.exists(n, {_ROLE} == 'worker') || {IS_OLD}",
        message=(
            "MXTrain needs a Scheduler, a Server and a Worker, or Workers alone; "
            "MXTune needs a TunerTracker, a TunerServer and a Tuner"
        ),
    ),
    Rule(
        rule=f"self.all(n, !({_IS_SINGLE}) || {_COUNT} == 1 || {IS_OLD_NAME} && {_OLD_COUNT} == {_COUNT})",
        message="there is one Scheduler or TunerTracker in a job; set its replicas to 1",
    ),
)
_JOB_COUNT = "self.spec.mxReplicaSpecs[n].?replicas.orValue(1)"
_CHILD_SIZE = f"size({NAME}) + size(n) + 2 + size(string({_JOB_COUNT} - 1))"
_JOB = (
    SERVICE_NAME,
    Rule(
        rule=(
            f"!has(self.spec) || self.spec.mxReplicaSpecs.all(n, size({NAME}) + size(n) <= {MAX_LABEL - 2 - DIGITS}"
            f" || {_CHILD_SIZE} <= {MAX_LABEL}"
            f" || oldSelf.?spec.?mxReplicaSpecs[?n].?replicas.orValue(1) == {_JOB_COUNT} && {IS_OLD})"
        ),
        path=".metadata.name",
        message=f"is too long: <job>-<role>-<index> may have {MAX_LABEL} characters",
        detail=(
            f"'is too long: <job>-<role>-<index> may have {MAX_LABEL} characters, too few for %s'"
            f".format([self.spec.mxReplicaSpecs.filter(n, {_CHILD_SIZE} > {MAX_LABEL})])"
        ),
    ),
)

_COLUMNS = (STATE, AGE, *SUMMARY)

DEFINITION = Definition(
    resource=RESOURCE,
    job=MXJob,
    columns=_COLUMNS,
    other_versions=(Version("v1beta1", _COLUMNS),),
    rules={
        MXJob: _JOB,
        MXJobSpec: _SPEC,
        (MXJobSpec, "mxReplicaSpecs"): _REPLICA_SPECS,
        RunPolicy: (MANAGED_BY,),
    },
)
