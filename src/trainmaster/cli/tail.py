"""The logs of a run, read where the node writes them: ``pods/<uid>/containers/<name>/<attempt>/log``.

Node and command are one process, so there is no need to ask the API for them, and nothing is lost of a pod that is
deleted as soon as it ends. A file has lines like ``2026-11-15T12:00:00.000000000Z stdout F text``, where P instead of
F says that the line goes on; a file that is full is moved to ``log.1`` and so on. A line whose end has not come is in
``unfinished`` beside it.
"""

import os
from pathlib import Path
from typing import NamedTuple

CHUNK = 1024 * 1024
"""Bytes of one file in one reading: a program that floods its log cannot hold up the others."""


HEAD = 30
"""The length of a time, with which every line begins."""
LONGEST_LINE = 64 * 1024
"""Bytes of a line that are kept until its end comes; a longer one is shown in pieces."""


class Piece(NamedTuple):
    """A part of one log."""

    time: str
    text: str | None = None
    """The line to show, of a progress bar its newest state; None while the line goes on."""
    raw: bytes = b""
    """What the program wrote, for a log file."""
    is_open: bool = False
    """The line has not ended; it comes again when it has."""
    is_bar: bool = False
    """It is open, and written again and again with carriage returns."""


class Line(NamedTuple):
    """A piece with its place; ``attempt`` counts the restarts of this container in this pod."""

    time: str
    uid: str
    container: str
    attempt: int
    text: str | None = None
    raw: bytes = b""
    is_open: bool = False
    is_bar: bool = False


class Tail:
    """One attempt's log, from its first line to its last."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: tuple[int, int] = (0, 0)
        """Inode and size of the newest file when we had read all of it."""
        self._mark = (0, b"")
        """Which file we are in: its inode, which may be used again, and how it begins, which is a time."""
        self._place = 0
        self._rest = b""
        self._open: dict[bytes, bytes] = {}
        """By stream: a line whose end was not seen yet."""
        self._ends: dict[bytes, str] = {}
        """By stream: the time of the last line that ended."""
        self._unfinished = file.with_name("unfinished")
        self._seen: tuple[int, int] = (0, 0)
        """Inode and time of the unfinished line that was read last."""

    def read(self) -> list[Piece]:
        """What came since the last time, and the unfinished line after it."""
        # Before the log: a line that ends between the two readings is read there, and known to have ended.
        state, line = self._read_unfinished()
        found = self._read_log()
        if line and self._known == _inode_and_size(self._file):
            self._seen = state
            found += self._unfinished_piece(line)
        return found

    def _read_log(self) -> list[Piece]:
        newest = _inode_and_size(self._file)
        if newest == self._known:
            return []
        found: list[Piece] = []
        budget = CHUNK
        for name in self._generations():
            content = self._content(name, budget)
            found += self._lines(content)
            budget -= len(content)
            if budget <= 0:
                return found
        self._known = newest
        return found

    def finish(self) -> list[Piece]:
        """The last lines, which may have no end."""
        found: list[Piece] = []
        while more := self._read_log():
            found += more
        found += [Piece("", _shown(line)) for line in self._open.values()]
        self._open.clear()
        return found

    def _read_unfinished(self) -> tuple[tuple[int, int], bytes]:
        """Its state and content; no content when it has not changed."""
        try:
            status = self._unfinished.stat()
            state = (status.st_ino, status.st_mtime_ns)
            return state, b"" if state == self._seen else self._unfinished.read_bytes()
        except FileNotFoundError:
            return (0, 0), b""

    def _unfinished_piece(self, line: bytes) -> list[Piece]:
        time, stream, _, text = [*line.split(b" ", 3), b"", b"", b""][:4]
        moment, shown = time.decode("ascii", "replace"), _shown(text)
        if moment <= self._ends.get(stream, "") or not shown.strip():
            return []
        return [Piece(moment, shown, is_open=True, is_bar=b"\r" in text)]

    def _generations(self) -> list[str]:
        """The files from the one that we are in to the newest, the oldest first."""
        names = [f"{self._file}.2", f"{self._file}.1", str(self._file)]
        ours = [index for index, name in enumerate(names) if _mark(name, self._mark) == self._mark]
        return names[ours[0] :] if ours and self._mark[0] else names

    def _content(self, name: str, budget: int) -> bytes:
        try:
            with open(name, "rb") as source:  # noqa: PTH123 - by the hundred, ten times a second
                mark = (os.fstat(source.fileno()).st_ino, source.read(HEAD))
                if (mark[0], mark[1][: len(self._mark[1])]) != self._mark:
                    self._place = 0
                self._mark = mark
                source.seek(self._place)
                content = source.read(budget)
        except FileNotFoundError:
            return b""
        self._place += len(content)
        return content

    def _lines(self, content: bytes) -> list[Piece]:
        *lines, self._rest = (self._rest + content).split(b"\n")
        found = []
        for line in lines:
            time, stream, tag, text = [*line.split(b" ", 3), b"", b"", b""][:4]
            moment, is_end = time.decode("ascii", "replace"), tag != b"P"
            if is_end:
                self._ends[stream] = moment
            raw = text + b"\n" if is_end else text
            found.append(Piece(moment, self._joined(stream, text, is_end), raw))
        return found

    def _joined(self, stream: bytes, text: bytes, is_end: bool) -> str | None:
        """The line whose last part this is; None when it goes on."""
        line = self._open.pop(stream, b"") + text
        if is_end or len(line) >= LONGEST_LINE:
            return _shown(line)
        self._open[stream] = line[_newest(line) :]
        return None


def _shown(line: bytes) -> str:
    return line[_newest(line) :].partition(b"\r")[0].decode(errors="replace")


def _newest(line: bytes) -> int:
    """Where the newest state of a progress bar begins: after a carriage return, and it is not blank."""
    return line.rstrip(b"\r ").rfind(b"\r") + 1


class Tails:
    """All logs of all pods that were seen."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "pods"
        self._tails: dict[tuple[str, str, int], Tail] = {}
        self._pods: dict[str, None] = {}
        self._changed: set[str] = set()
        self._new: list[Line] = []
        """For each log that was found since the last reading a line without content: the log may have no other."""

    def see(self, uid: str) -> None:
        """Something happened to this pod: there may be a new attempt."""
        self._pods[uid] = None
        self._changed.add(uid)

    def read(self) -> list[Line]:
        """What was written since the last time, in the order of its times."""
        for uid in list(self._changed):
            if self._find(uid):
                self._changed.discard(uid)  # else its node has not begun with it
        return self._sorted({key: tail.read() for key, tail in self._tails.items()})

    def finish(self) -> list[Line]:
        for uid in self._pods:
            self._find(uid)
        return self._sorted({key: tail.finish() for key, tail in self._tails.items()})

    def _find(self, uid: str) -> bool:
        found = False
        for path in sorted((self._folder / uid / "containers").glob("*/*/log")):
            container, attempt = path.parts[-3:-1]
            if attempt.isdecimal():
                key = (uid, container, int(attempt))
                if key not in self._tails:
                    self._tails[key] = Tail(path)
                    self._new.append(Line("", *key))
                found = True
        return found

    def _sorted(self, found: dict[tuple[str, str, int], list[Piece]]) -> list[Line]:
        lines, self._new = self._new, []
        for key, pieces in found.items():
            latest = ""
            for piece in pieces:
                latest = max(latest, piece.time)  # whatever the clock does, the lines of one log keep their order
                lines.append(Line(latest, *key, piece.text, piece.raw, piece.is_open, piece.is_bar))
        return sorted(lines, key=lambda line: line.time)


def _inode_and_size(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_ino, status.st_size)


def _mark(name: str, known: tuple[int, bytes]) -> tuple[int, bytes]:
    """The mark of a file, as far as the known one goes: a file that was short may have grown."""
    try:
        with open(name, "rb") as source:  # noqa: PTH123 - as above
            return os.fstat(source.fileno()).st_ino, source.read(len(known[1]))
    except FileNotFoundError:
        return (0, b"")
