"""How children that another operator created for a job become ours, while they go on running."""

from collections.abc import Iterable, Mapping

import msgspec

from trainmaster.core.ids import POD, SERVICE, Resource
from trainmaster.core.plan import Body, Patch
from trainmaster.core.template import MANAGED_BY, Owner
from trainmaster.core.view import CandidateView

Candidates = Mapping[Resource, tuple[CandidateView, ...]]
"""Children of one job that are not adopted yet, by resource."""

_UNADOPTED = ",".join(f"{key}!={value}" for key, value in MANAGED_BY.items())
_WHY = "another operator created it, and the job goes on with it"


class Predecessor(msgspec.Struct, frozen=True, kw_only=True):
    """The operator that drove jobs of a kind before: what its children are found by."""

    labels: str
    """A label selector that all of its children match."""
    resources: tuple[Resource, ...] = (POD, SERVICE)
    sets_owners: bool = True
    """All of its children have owner references, see ``Kind.unowned``."""
    reads_pods: bool = False
    """More than the metadata of its pods is needed, see ``Kind.remembered``."""

    @property
    def selector(self) -> str:
        """Of children that are not adopted yet."""
        return f"{self.labels},{_UNADOPTED}"


class Unowned(msgspec.Struct, frozen=True):
    """A child that the predecessor created without an owner reference: its name and labels say whose it is."""

    resource: Resource
    name: str
    labels: Mapping[str, str]

    def is_met_by(self, found: CandidateView) -> bool:
        """True when the object has no owner and all labels of our children."""
        return not found.has_owners and self.labels.items() <= found.labels.items()


def patches(candidates: Candidates, owner: Owner) -> tuple[Patch, ...]:
    """Our label for each of them, and the job as the owner of those that have none."""
    return tuple(_patches(candidates, owner.reference(blocks=True)))


def _patches(candidates: Candidates, owner: Body) -> Iterable[Patch]:
    for resource, found in candidates.items():
        for each in found:
            owners = {} if each.has_owners else {"ownerReferences": [owner]}
            body: Body = {"metadata": {"labels": MANAGED_BY, **owners}}
            yield Patch(resource, each.key, each.uid, each.resource_version, body, _WHY)
