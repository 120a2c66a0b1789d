"""Text for terminals and programs: ages, lines without control sequences, tables, JSON."""

import re
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

# ANSI escape sequences, and every other control character except the tab.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def age(since: datetime | None, until: datetime) -> str:
    """``12s``, ``3m4s``, ``2h5m``, ``3d4h``."""
    if since is None:
        return "-"
    seconds = max(0, int((until - since).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60}m"
    return f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"


def printable(line: str) -> str:
    """One line of a program's output without control sequences; of a progress bar its last state."""
    return _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]).expandtabs(2)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0) -> str:
    """Columns of equal width with two spaces between them. The last column is cut if a line would be longer than
    ``width``, unless it is 0."""
    lines = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    text = ("  ".join((*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[-1])).rstrip() for line in lines)
    return "\n".join(f"{line[: width - 1]}…" if 0 < width < len(line) else line for line in text)


def terminal_width() -> int:
    """0 if the output is not a terminal: nothing is cut then."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def to_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()
