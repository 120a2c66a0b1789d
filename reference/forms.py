"""The words on the wire of each kind, from the kind's own modules. A DIJob has two forms."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trainmaster.core import condition, template
from trainmaster.core.ids import Resource
from trainmaster.kinds import kubeflow_status, priority
from trainmaster.kinds.aitrainingjob import annotations as aitj_annotations
from trainmaster.kinds.aitrainingjob import body as aitj_body
from trainmaster.kinds.aitrainingjob import framework as aitj_framework
from trainmaster.kinds.aitrainingjob import labels as aitj_labels
from trainmaster.kinds.aitrainingjob import reason as aitj_reason
from trainmaster.kinds.aitrainingjob import status as aitj_status
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.base import Kind
from trainmaster.kinds.description import constants_of
from trainmaster.kinds.dijob import body as dijob_body
from trainmaster.kinds.dijob import profile as dijob_profile
from trainmaster.kinds.dijob import reason as dijob_reason
from trainmaster.kinds.dijob import status as dijob_status
from trainmaster.kinds.dijob.kind import DIJobKind, NerveXJobKind
from trainmaster.kinds.ditask import body as ditask_body
from trainmaster.kinds.ditask import labels as ditask_labels
from trainmaster.kinds.ditask import reason as ditask_reason
from trainmaster.kinds.ditask import status as ditask_status
from trainmaster.kinds.ditask.kind import DITaskKind
from trainmaster.kinds.mlkube import body as mlkube_body
from trainmaster.kinds.mlkube import labels as mlkube_labels
from trainmaster.kinds.mlkube import reason as mlkube_reason
from trainmaster.kinds.mlkube import replica as mlkube_replica
from trainmaster.kinds.mlkube import status as mlkube_status
from trainmaster.kinds.mlkube.kind import FirstMxJobKind, MxJobKind
from trainmaster.kinds.mxjob import body as mxjob_body
from trainmaster.kinds.mxjob import labels as mxjob_labels
from trainmaster.kinds.mxjob import reason as mxjob_reason
from trainmaster.kinds.mxjob.kind import MXJobKind
from trainmaster.lifecycle import environment, gang, queue
from trainmaster.lifecycle import reason as shared_reason

Words = Mapping[str, str]
"""With descriptions."""


def constants(module: Any, *names: str) -> dict[str, str]:
    """The values of the constants of a module that are words on the wire, with the texts behind them; all of them
    unless some are named. Constants that begin with an underscore and prefixes are no words."""
    texts = constants_of(module.__name__)
    found = names or [name for name in vars(module) if name.isupper() and name != "PREFIX" and name[0] != "_"]
    return {vars(module)[name]: texts.get(name, "") for name in found}


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """One kind, as its jobs look on the wire."""

    kind: type[Kind[Any]]
    title: str
    phases: Words
    prefix: str
    """Of the reasons of phases."""
    labels: Words
    """Of pods, beside those of all kinds."""
    steps: Sequence[str] = ("Suspended", "Resumed")
    """Beside the phases: what follows the prefix in other reasons."""
    environment: Words
    environment_note: str
    reasons: Words = {}
    conditions: Words = {}
    annotations: Words = {}
    """Of pods, beside those of all kinds."""
    read_annotations: Words = {}
    """Annotations that users set."""
    read_annotations_note: str = ""
    frameworks: Mapping[str, Words] = {}
    """Variables that depend on ``frameworkType``."""


CONDITIONS = constants(condition) | constants(priority, "HAS_PRIORITY_CLASS")
REASONS = constants(shared_reason)
LABELS = {**template.LABELS, **gang.LABELS, **queue.LABELS}
"""Of the pods of all kinds."""
ANNOTATIONS = {**gang.ANNOTATIONS, **queue.ANNOTATIONS}
READ_LABELS = queue.READ_LABELS
"""Of the jobs of all kinds."""

_DIJOB_REASONS = constants(dijob_reason)
_ALL_CONTAINERS = "In every container, before the variables of the template"
_INIT_CONTAINERS = "In every container and init container, before the variables of the template"

FORMS: Sequence[Form] = (
    Form(
        kind=AITrainingJobKind,
        title="AITrainingJob",
        phases=aitj_status.PHASES,
        prefix=aitj_reason.PREFIX,
        steps=(),
        labels={**aitj_labels.LABELS, **environment.LABELS},
        environment=aitj_body.ENVIRONMENT,
        environment_note=(
            f"{_INIT_CONTAINERS}. `<ROLE>` is the name of a role in upper case. For a role with "
            "`-` in its name the variables exist twice, with `-` and with `_`."
        ),
        read_annotations=aitj_annotations.ANNOTATIONS,
        read_annotations_note=(
            "Annotations of the job that you can set. The first three may be in lower case, and may have the prefix "
            "`elasticdeeplearning.ai/`."
        ),
        frameworks=aitj_framework.ENVIRONMENT,
    ),
    Form(
        kind=DIJobKind,
        title="With a coordinator (v1alpha1)",
        phases=dijob_status.PHASES,
        prefix="DIJob",
        labels=dijob_profile.DI.labels,
        environment={**dijob_body.ENVIRONMENT, **dijob_body.DDP_ENVIRONMENT},
        environment_note=f"{_ALL_CONTAINERS}.",
        reasons={word: text for word, text in _DIJOB_REASONS.items() if word != dijob_reason.AGGREGATOR_DISPLACED},
    ),
    Form(
        kind=DITaskKind,
        title="With tasks (v2alpha1)",
        phases=ditask_status.PHASES,
        prefix=ditask_reason.PREFIX,
        labels={**ditask_labels.LABELS, **environment.LABELS},
        annotations=ditask_labels.ANNOTATIONS,
        environment=ditask_body.ENVIRONMENT,
        environment_note=f"{_INIT_CONTAINERS}. `<TASK>` is in upper case, with `_` for `-`.",
    ),
    Form(
        kind=NerveXJobKind,
        title="NerveXJob",
        phases=dijob_status.PHASES,
        prefix="NerveXJob",
        labels={word: text for word, text in dijob_profile.NERVEX.labels.items() if word != "ddp-learner-type"},
        environment={**dijob_body.ENVIRONMENT, **dijob_body.NERVEX_ENVIRONMENT},
        environment_note=f"{_ALL_CONTAINERS}.",
        reasons=_DIJOB_REASONS,
    ),
    Form(
        kind=MXJobKind,
        title="MXJob",
        phases=kubeflow_status.PHASES,
        prefix=mxjob_reason.PREFIX,
        labels={**mxjob_labels.LABELS, **environment.LABELS},
        environment=mxjob_body.ENVIRONMENT,
        environment_note="Before the variables of the template. `DMLC_*` are in the container `mxnet` alone.",
        read_annotations=mxjob_labels.ANNOTATIONS,
        read_annotations_note="Annotations that you can set.",
        reasons=constants(mxjob_reason),
    ),
    *(
        Form(
            kind=kind,
            title="MxJob",
            phases=mlkube_status.PHASES,
            prefix=mlkube_reason.PREFIX,
            steps=("Succeeded", "Failed", "Suspended", "Resumed"),
            labels=mlkube_labels.LABELS,
            environment=mlkube_body.ENVIRONMENT,
            environment_note="In the container `mxnet` of jobs with `jobMode: dist`, before those of the template.",
            reasons=constants(mlkube_reason),
            conditions=constants(mlkube_status, "READY") | constants(mlkube_replica, "RECOVERING"),
        )
        for kind in (MxJobKind, FirstMxJobKind)
    ),
)


_STEPS = {
    "Succeeded": "The job has succeeded.",
    "Failed": "The job has failed.",
    "Suspended": "The job was suspended.",
    "Resumed": "The job was resumed.",
}


def forms_of(resource: Resource) -> list[Form]:
    return [form for form in FORMS if form.kind.resource == resource]


def prefixed_reasons(form: Form) -> dict[str, str]:
    phases = {f"{form.prefix}{phase}": f"The phase is {phase}." for phase in form.phases}
    return {f"{form.prefix}{step}": _STEPS[step] for step in form.steps} | phases
