"""The kinds of job that trainmaster drives. Their order is the order of start-up."""

from typing import Any

from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.base import Kind, Settings
from trainmaster.kinds.dijob.kind import DIJobKind, NerveXJobKind
from trainmaster.kinds.mlkube.kind import FirstMxJobKind, MxJobKind
from trainmaster.kinds.mxjob.kind import MXJobKind

KINDS: tuple[type[Kind[Any]], ...] = (
    DIJobKind,
    AITrainingJobKind,
    NerveXJobKind,
    MXJobKind,
    MxJobKind,
    FirstMxJobKind,
)


def all_kinds(settings: Settings) -> tuple[Kind[Any], ...]:
    return tuple(kind(settings) for kind in KINDS)
