"""A document as its reader takes it: files to save, commands to type, and what they print."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.operator import REPOSITORY

ELSEWHERE = "# in another terminal"
"""Ends a command that keeps running."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|^#+ ([^\n]+)$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# ([\w-]+\.\w+)\n")


class SavedFile(NamedTuple):
    """A block whose first line is a comment with the name of a file."""

    section: str
    name: str
    text: str


class Command(NamedTuple):
    section: str
    text: str
    printed: tuple[str, ...]
    """What the document says; empty if it says nothing."""

    @property
    def keeps_running(self) -> bool:
        return self.text.endswith(ELSEWHERE)


def documents() -> list[Path]:
    return sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def steps(document: Path) -> Iterator[SavedFile | Command]:
    """What the reader does, from the top."""
    section = ""
    for language, body, heading in _BLOCK.findall(document.read_text()):
        if heading:
            section = heading
        elif language == "console":
            yield from _commands(section, body)
        elif name := _NAME.match(body):
            yield SavedFile(section, name[1], body)


def _commands(section: str, body: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        text, *printed = part.replace("\\\n", "").splitlines()
        yield Command(section, text.strip(), tuple(printed))


def difference(said: Sequence[str], printed: str) -> str:
    """Why a command did not print what the document says; empty if it did.

    A line of "…" is any number of lines, and "…" in a line is any text. Times and numbers of spaces are not compared,
    nor is the order in which lines of different replicas are mixed.
    """
    wanted, found = _streams(said), _streams(printed.splitlines())
    for name in sorted({*wanted, *found}):
        pattern = "".join(map(_pattern, wanted.get(name, _ellipses(said))))
        text = "".join(f"{line}\n" for line in found.get(name, ()))
        if not re.fullmatch(pattern, text):
            return "\n".join(("the document says", *said, "and printed is", printed))
    return ""


_REPLICA = re.compile(r"([a-z][\w-]*) +\| ")
_TIME = re.compile(r"\b(\d+(\.\d+)?(ms|[dhms]))+\b")


def _streams(lines: Sequence[str]) -> dict[str, list[str]]:
    """The lines of each replica, and of the command itself; a "…" may be lines of all of them."""
    names = {found[1] for line in lines if (found := _REPLICA.match(line))}
    streams: dict[str, list[str]] = {name: [] for name in ("", *names)}
    for line in lines:
        replica = _REPLICA.match(line)
        for name in streams if line == "…" else [replica[1] if replica else ""]:
            streams[name].append(_normal(line))
    return streams


def _ellipses(said: Sequence[str]) -> list[str]:
    """Of a replica of which the document says nothing."""
    return [line for line in said if line == "…"]


def _normal(line: str) -> str:
    return re.sub(r" +", " ", _TIME.sub("0s", line)).rstrip()


def _pattern(line: str) -> str:
    if line == "…":
        return r"(?:.*\n)*"
    return ".*".join(map(re.escape, line.split("…"))) + r"\n"
