"""Text for terminals and programs: ages, lines without control sequences, tables, JSON."""

import re
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from trainmaster.core.plain import BIDI, plain

_UNESCAPED = re.compile(f"[\x7f-\x9f{BIDI}]")


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


def duration(since: datetime, until: datetime) -> str:
    """``12 s``, ``3 min 4 s``, ``2 h 5 min``, ``3 d 4 h``: for sentences."""
    words = {"d": " d ", "h": " h ", "m": " min ", "s": " s "}
    return "".join(words.get(char, char) for char in age(since, until)).strip()


def printable(line: str) -> str:
    """For a cell of a table: as ``plain``, of a progress bar its last state, and with spaces instead of tabs."""
    return plain(line.rstrip("\r").rpartition("\r")[2]).expandtabs(2)


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
    return escaped(msgspec.json.format(msgspec.json.encode(value)).decode())


def escaped(json: str) -> str:
    """The same JSON, with escapes for characters that control terminals: encoders write those after ASCII as they
    are."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json)
