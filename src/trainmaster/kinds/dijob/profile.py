"""What DIJob and NerveXJob do not have in common, as data: everything else is one implementation.

nerveX became DI-engine. Before, the operator made an aggregator for every job and called containers and ports by
their role; later di-server asks for aggregators, and the main container is always called the same.
"""

from collections.abc import Mapping

import msgspec

from trainmaster.core.ids import Resource
from trainmaster.kinds.dijob import labels, nervexjob
from trainmaster.kinds.dijob import types as dijob
from trainmaster.kinds.dijob.types import DIJob

COORDINATOR = "coordinator"
AGGREGATOR = "aggregator"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    resource: Resource
    job_name: str
    """The label that names the job."""
    controller: str
    """The value of the label ``controller-name``."""
    component: str
    """The source that Events name."""
    fixed_roles: tuple[str, ...]
    """Roles of which every job has one pod, ``<job>-<role>``, which the operator creates by itself."""
    container_name: str = ""
    port_name: str = ""
    """Empty: what the role is called."""

    @property
    def word(self) -> str:
        """The kind, as messages and reasons spell it."""
        return self.resource.kind

    @property
    def has_own_aggregator(self) -> bool:
        """True where the job's one aggregator gathers all learners; else each learner of several GPUs has one."""
        return AGGREGATOR in self.fixed_roles

    @property
    def labels(self) -> dict[str, str]:
        """The labels of pods, with descriptions for users."""
        return {self.job_name: "The name of the job; also on services.", **labels.LABELS}

    def container(self, role: str) -> str:
        """The name of a pod's main container."""
        return self.container_name or role

    def port(self, role: str) -> str:
        """The name of the port by which a replica is reached."""
        return self.port_name or role


DI = Profile(
    resource=dijob.RESOURCE,
    job_name="dijob-name",
    controller="di-operator",
    component="di-orchestrator",
    fixed_roles=(COORDINATOR,),
    container_name="di-container",
    port_name="di-port",
)
NERVEX = Profile(
    resource=nervexjob.RESOURCE,
    job_name="nervexjob-name",
    controller="nervex-operator",
    component="nervex-operator",
    fixed_roles=(COORDINATOR, AGGREGATOR),
)

PROFILES = (DI, NERVEX)

_OF_TYPE: Mapping[type[DIJob], Profile] = {DIJob: DI, nervexjob.NerveXJob: NERVEX}


def profile_of(job: DIJob) -> Profile:
    return _OF_TYPE[type(job)]


def type_of(profile: Profile) -> type[DIJob]:
    """As whose jobs are decoded."""
    return next(job for job, found in _OF_TYPE.items() if found is profile)
