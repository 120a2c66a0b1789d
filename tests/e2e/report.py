"""What a run saw, written to docs/reliability.md when it has ended."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.e2e.kinds import KINDS

FILE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"

_HEAD = """# Reliability: what was measured

`make e2e` writes this page. It starts three real nodes on one machine (kubelet, containerd, runc, CoreDNS), installs
`deploy/` unchanged, runs jobs of every kind, and breaks things. A node is NotReady {lease} s after its last sign of
life, and pods leave a lost node {eviction} s later; Kubernetes' defaults are about 40 s and 300 s. The nodes share the
cores of the machine, so all times are upper bounds.
"""


class Seen(NamedTuple):
    """What happened to a kind in a fault, and after how long; without seconds, nothing was to happen."""

    text: str
    seconds: float | None = None


class Report:
    """Collects what tests saw."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.trained: dict[str, str] = {}
        self.faults: dict[str, dict[str, Seen]] = {}

    def fact(self, what: str, value: str) -> None:
        """One line of the first table."""
        self.facts[what] = value

    def training(self, example: str, result: str) -> None:
        """How the training of an example ended."""
        self.trained[example] = result

    def fault(self, name: str, seen: Mapping[str, Seen]) -> None:
        """A row of the table of faults: by kind."""
        self.faults[name] = dict(seen)

    def text(self, *, lease: int, eviction: int) -> str:
        """The page."""
        lines = [_HEAD.format(lease=lease, eviction=eviction), "## Installation", "", "| | measured |", "|---|---|"]
        lines += [f"| {what} | {value} |" for what, value in self.facts.items()]
        lines += ["", "## Training", "", "| example | result |", "|---|---|"]
        lines += [f"| `{example}` | {result} |" for example, result in self.trained.items()]
        lines += ["", "## Faults", "", f"| fault | {' | '.join(kind.name for kind in KINDS)} |"]
        lines += [f"|{'---|' * (len(KINDS) + 1)}"]
        for name, seen in self.faults.items():
            cells = [_cell(seen.get(kind.name)) for kind in KINDS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def _cell(seen: Seen | None) -> str:
    if seen is None:
        return "–"
    return seen.text if seen.seconds is None else f"{seen.text} ({seen.seconds:.0f} s)"
