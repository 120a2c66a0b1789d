"""The ranks of pods that DI-orchestrator v1.1 created: their annotations have them, and nothing else does."""

from collections.abc import Iterable

import msgspec

from trainmaster.core.plan import MAX_REPLICAS
from trainmaster.core.view import CandidateView
from trainmaster.kinds.ditask import labels
from trainmaster.kinds.ditask.types import DITaskJob


class _Meta(msgspec.Struct):
    annotations: dict[str, str] = {}


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_POD = msgspec.json.Decoder(_Pod)


def adopted_ranks(job: DITaskJob, pods: Iterable[CandidateView]) -> dict[str, int]:
    """By replica. Of two pods with one rank the first has it."""
    found: dict[int, str] = {}
    for pod in pods:
        rank = _POD.decode(pod.raw).metadata.annotations.get(labels.RANK, "")
        if rank.isascii() and rank.isdecimal() and len(rank) <= len(str(MAX_REPLICAS)):
            found.setdefault(int(rank), pod.key.name.removeprefix(f"{job.metadata.name}-"))
    return {place: rank for rank, place in found.items()}
