"""The names of kinds on the command line: ``aitrainingjob``, ``aitj``, ``aitrainingjobs``, ``mxjob.kubeflow.org``."""

from functools import cache

from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import Resource
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import DEFINITIONS, all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds


@cache
def job_kinds() -> tuple[ResourceKinds, ...]:
    return all_resource_kinds(Settings())


def kind_name(resource: Resource) -> str:
    """What a kind is called, with its group if another kind has the same name."""
    return next((each.name for each in job_kinds() if resource in each.resources), resource.kind.lower())


def kinds_called(text: str) -> tuple[ResourceKinds, ...]:
    """The kinds with this name, in any case: none if no kind has it, several if it has no group and two kinds have
    it."""
    return tuple(each for each in job_kinds() if text.lower() in _names(each))


def kind_called(text: str) -> ResourceKinds:
    """The first kind with this name."""
    if found := kinds_called(text):
        return found[0]
    raise BadConfig(f"{text} is not a kind of job; choose one of {', '.join(each.name for each in job_kinds())}")


@cache
def _names(kinds: ResourceKinds) -> frozenset[str]:
    resource = kinds.resource
    short = next(definition.short_name for definition in DEFINITIONS if definition.resource == resource)
    singular, plural = resource.kind.lower(), resource.plural
    full = {f"{singular}.{resource.group}", f"{plural}.{resource.group}"}
    return kinds.spellings | full | {plural} | ({short} if short else set())
