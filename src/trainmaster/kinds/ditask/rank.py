"""The rank of each replica, and the addresses of all replicas in the order of their ranks.

DI-engine takes the address of a process from ``DI_NODES`` by its ``DI_RANK``, listens there, and dials lower ranks
only. So a replica keeps its rank as long as the job has pods, and a new one gets the next number: the pods that run
need not know it. A replica that is scaled away leaves a gap. Its name would not resolve, and DI-engine stops at a name
that does not resolve; so the gap is called localhost, where a dial is refused and repeated. A pod that is created with
such a gap never dials the replica that left it: if that comes back, it gets the next rank.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

from trainmaster.core.plan import MAX_REPLICAS
from trainmaster.core.slot import Slot, slot_of
from trainmaster.kinds.ditask import labels
from trainmaster.kinds.ditask.types import DITaskJob

NODES = "DI_NODES"
GAP = "localhost"
MAX_GAPS = 256
"""If so many ranks belong to no replica, no more are given up: new pods dial each of them in vain."""


def ranks_of(
    stored: Mapping[str, int], slots: Sequence[Slot], roles: Container[str], missing: Iterable[Slot]
) -> dict[str, int]:
    """The stored ranks, and the next ones for slots that have none, in the order of the slots. Replicas that are scaled
    away keep theirs for their return, unless it is given up. Those of a task that is in ``roles`` no more do not."""
    found = {place: rank for place, rank in stored.items() if place.rpartition("-")[0] in roles}
    following = max(found.values(), default=-1) + 1
    for slot in slots:
        if slot.place not in found:
            found[slot.place] = following
            following += 1
    lost = given_up(found, slots, missing)
    return {place: rank for place, rank in found.items() if place not in lost}


def given_up(ranks: Mapping[str, int], slots: Iterable[Slot], missing: Iterable[Slot]) -> set[str]:
    """Replicas that are scaled away, and that one of the missing pods should dial: it will be created without their
    addresses."""
    if max(ranks.values(), default=-1) + 1 - len(ranks) >= MAX_GAPS:
        return set()
    dialling = max((ranks.get(slot.place, -1) for slot in missing), default=-1)
    present = {slot.place for slot in slots}
    return {place for place, rank in ranks.items() if rank < dialling and place not in present}


def address(job: DITaskJob, pod: str, domain: str) -> str:
    """The name of a pod in the DNS of the cluster."""
    return f"{pod}.{labels.service_name(job.metadata.name)}.{job.metadata.namespace}.{domain}"


def nodes(job: DITaskJob, slots: Iterable[Slot], ranks: Mapping[str, int], domain: str) -> str:
    """The addresses of the replicas by rank."""
    by_rank = {ranks[slot.place]: address(job, slot.name, domain) for slot in slots}
    return ",".join(by_rank.get(rank, GAP) for rank in range(max(by_rank, default=-1) + 1))


def nodes_size(job: DITaskJob, counts: Mapping[str, int], domain: str) -> int:
    """At most so long ``nodes`` is for so many replicas of each task, with the gaps that the stored ranks leave."""
    longest = {
        task: len(address(job, slot_of(job.metadata.name, task, n - 1).name, domain)) for task, n in counts.items()
    }
    ranks = job.status.ranks
    kept = sum(_has_place(counts, place) for place in ranks)  # new replicas come after all stored ranks
    gaps = max(max(ranks.values(), default=-1) + 1 - kept, 0)
    return sum(n * (longest[task] + 1) for task, n in counts.items()) + gaps * len(f"{GAP},")


def _has_place(counts: Mapping[str, int], place: str) -> bool:
    task, _, index = place.rpartition("-")
    return index.isdecimal() and len(index) <= len(str(MAX_REPLICAS)) and int(index) < counts.get(task, 0)
