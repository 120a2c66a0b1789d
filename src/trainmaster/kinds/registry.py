"""The kinds of job that trainmaster drives, in the order of start-up, and the resources that it defines."""

from typing import Any

from trainmaster.kinds.aitrainingjob import crd as aitrainingjob
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.base import Kind, Settings
from trainmaster.kinds.definition import Definition
from trainmaster.kinds.dijob import crd as dijob
from trainmaster.kinds.dijob.kind import DIJobKind, NerveXJobKind
from trainmaster.kinds.ditask import crd as ditask
from trainmaster.kinds.ditask.kind import DITaskKind
from trainmaster.kinds.mlkube import crd as mlkube
from trainmaster.kinds.mlkube.kind import FirstMxJobKind, MxJobKind
from trainmaster.kinds.mxjob import crd as mxjob
from trainmaster.kinds.mxjob.kind import MXJobKind
from trainmaster.kinds.resource_kinds import ResourceKinds, by_resource

KINDS: tuple[type[Kind[Any]], ...] = (
    DIJobKind,
    DITaskKind,
    AITrainingJobKind,
    NerveXJobKind,
    MXJobKind,
    MxJobKind,
    FirstMxJobKind,
)

DEFINITIONS: tuple[Definition, ...] = (
    ditask.DEFINITION,
    aitrainingjob.DEFINITION,
    dijob.AGGREGATOR_CONFIG,
    dijob.NERVEXJOB,
    dijob.NERVEX_AGGREGATOR_CONFIG,
    mlkube.DEFINITION,
    mlkube.FIRST_DEFINITION,
    mxjob.DEFINITION,
)
"""The resources that trainmaster defines, in the order of deploy/crds.yaml."""


def all_kinds(settings: Settings) -> tuple[Kind[Any], ...]:
    return tuple(kind(settings) for kind in KINDS)


def all_resource_kinds(settings: Settings) -> tuple[ResourceKinds, ...]:
    """All kinds, those that share a resource together."""
    served = {definition.resource: definition.other_versions for definition in DEFINITIONS}
    return tuple(
        ResourceKinds(*kinds, versions=[version.name for version in served[kinds[0].resource]])
        for kinds in by_resource(all_kinds(settings))
    )
