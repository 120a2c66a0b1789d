"""What the user wants for the run of an MXJob: one answer to each question, wherever the manifest says it."""

from collections.abc import Mapping

import msgspec

from trainmaster.kinds.mxjob.role import FIXED, roles_of
from trainmaster.kinds.mxjob.types import MXJob, MXJobSpec
from trainmaster.kinds.run_policy import Policy, RunPolicy
from trainmaster.lifecycle.restart import RestartPolicy, RestartScope, Rules

BACKOFF = 10
"""Seconds before the second restart in a row; twice as many before each that follows."""
RETRYABLE = "128-255"
"""Exit codes of a program that was ended from outside, as the training-operator has them since 1.5."""

_POLICIES: Mapping[str, RestartPolicy] = {
    "Always": "Always",
    "OnFailure": "OnFailure",
    "Never": "Never",
    # A pod that its node ended has no exit code of its own.
    "ExitCode": "OnNodeFailWithExitCode",
}


def policy_of(spec: MXJobSpec) -> RunPolicy:
    """The run policy, with what an older manifest says in the spec itself."""
    run = spec.run_policy
    older = {field: getattr(spec, field) for field in Policy.__struct_fields__ if getattr(run, field) is None}
    return msgspec.structs.replace(run, **older)


def rules_of(job: MXJob) -> dict[str, Rules]:
    """Pods cannot rejoin a parameter server, so the default scope of MXTrain is All; TVM's servers and tuners restart
    alone. Once a scheduler or server has succeeded, the scope is always All."""
    default: RestartScope = "All" if job.spec.job_mode == "MXTrain" else "Pod"
    is_over = any(role in job.status.done for role in FIXED)
    return {
        role: Rules(
            _POLICIES[replica.restart_policy],
            "All" if is_over else replica.restart_scope or default,
            limit=None,
            backoff=BACKOFF,
            reset=None,
        )
        for role, replica in roles_of(job.spec).items()
    }
