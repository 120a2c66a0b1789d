"""The results as a table of plain text, and a verdict for each budget of the design (§6)."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from bench.phase import Created, Footprint, Lives

JOBS = 250
"""The budgets are meant for this many jobs of four pods."""

RATIO = 1.3
RUNNING_SECONDS = 1.0
MEMORY = 80.0
MEMORY_OF_MANY = 150.0
STATUS_WRITES = 6

_HEADER = ("what", "objects", "seconds", "objects/s", "ratio", "budget", "verdict")


class Results(msgspec.Struct):
    """All that was measured; what was left out is empty."""

    jobs: int
    raw: list[Created] = []
    job_controller: list[Created] = []
    operator: list[Created] = []
    lives: Lives | None = None
    footprint: Footprint | None = None


class Row(NamedTuple):
    """One measurement, and what it is held against."""

    what: str
    objects: str = ""
    seconds: str = ""
    rate: str = ""
    ratio: str = ""
    budget: str = ""
    verdict: str = ""


class Budget(NamedTuple):
    """One promise of the design and how it was kept."""

    says: str
    measured: str
    is_kept: bool

    @property
    def verdict(self) -> str:
        return "ok" if self.is_kept else "OVER"


def ratios(results: Results) -> list[float]:
    """Each run of the operator in terms of the raw runs directly before and after it."""
    pairs = zip(results.raw, results.raw[1:], results.operator, strict=False)
    return [ours.seconds / statistics.mean((before.seconds, after.seconds)) for before, after, ours in pairs]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the sorted values does not exceed."""
    return values[max(0, -(-len(values) * round(share * 100) // 100) - 1)]
