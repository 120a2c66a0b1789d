"""The logs of a run, read from the files of the node: ``pods/<uid>/containers/<name>/<attempt>/log``.

Node and command are one process, so the API is not needed, and no line is lost of a pod that is deleted as soon as it
ends. A line of a file is ``2026-11-15T12:00:00.000000000Z stdout F text``; P instead of F means that the line goes on.
A full file is renamed to ``log.1`` and so on, and the oldest file is deleted here when it was read: the program waits
for that, so no line is lost. An incomplete line is in the file ``unfinished`` beside it.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

CHUNK = 256 * 1024
"""Bytes that are read of one file at a time, so that a program with much output does not delay the others."""

HEAD = 30
"""The length of the time at the beginning of each line."""
LONGEST_LINE = 64 * 1024
"""Bytes of an incomplete line that are buffered; a longer line is shown in parts."""


class Piece(NamedTuple):
    """A part of one log."""

    time: str
    text: str | None = None
    """The line to show, of a progress bar its newest state; None while the line is incomplete."""
    raw: bytes = b""
    """The raw output, for a log file."""
    is_open: bool = False
    """The line is incomplete; it is reported again when it is complete."""
    is_bar: bool = False
    """The line is incomplete and is rewritten with carriage returns."""
    skipped: int = 0
    """The number of complete lines in ``raw`` that are not shown."""


class Line(NamedTuple):
    """A piece and its origin; ``attempt`` counts the restarts of this container in this pod."""

    time: str
    uid: str
    container: str
    attempt: int
    text: str | None = None
    raw: bytes = b""
    is_open: bool = False
    is_bar: bool = False
    skipped: int = 0


class Tail:
    """The log of one attempt. Of each part that is read, only the last ``most`` lines are shown."""

    def __init__(self, file: Path, most: int = sys.maxsize) -> None:
        self._file = file
        self._most = most
        self.has_more = False
        """There is more to read now."""
        self._known: tuple[int, int] = (0, 0)
        """Inode and size of the newest file when it was read completely."""
        self._mark = (0, b"")
        """The current file: its inode, which may be reused, and its first bytes, which are a time."""
        self._is_read = False
        """The current file was read completely, and no more lines are added to it."""
        self._place = 0
        self._rest = b""
        self._open = b""
        """An incomplete line."""
        self._end = ""
        """The time of the last complete line."""
        self._unfinished = file.with_name("unfinished")
        self._seen: tuple[int, int] = (0, 0)
        """Inode and time of the unfinished line that was read last."""

    def read(self) -> list[Piece]:
        """The lines since the last call, then the unfinished line."""
        # Before the log: a line that is completed between the two reads is then in the log.
        state, line = self._read_unfinished()
        pieces = self._read_log()
        if line and self._known == _inode_and_size(self._file):
            self._seen = state
            pieces += self._unfinished_piece(line)
        return pieces

    def _read_log(self) -> list[Piece]:
        self.has_more = False
        newest = _inode_and_size(self._file)
        if newest == self._known:
            return []
        pieces: list[Piece] = []
        budget = CHUNK
        while budget > 0:
            content, is_complete = self._content(budget)
            pieces += self._lines(content)
            if len(content) < budget and not is_complete:
                self._known = newest
                return pieces
            self._is_read = len(content) < budget
            budget -= len(content)
        self.has_more = True
        return pieces

    def finish(self) -> list[Piece]:
        """The lines since the last call and, if nothing is left to read, the incomplete one."""
        pieces = self._read_log()
        if not self.has_more:
            pieces += [Piece("", _shown(self._open))] if self._open else []
            self._open = b""
        return pieces

    def _read_unfinished(self) -> tuple[tuple[int, int], bytes]:
        """State and content of the file; no content if it has not changed."""
        try:
            status = self._unfinished.stat()
            state = (status.st_ino, status.st_mtime_ns)
            return state, b"" if state == self._seen else self._unfinished.read_bytes()
        except FileNotFoundError:
            return (0, 0), b""

    def _unfinished_piece(self, line: bytes) -> list[Piece]:
        time, _, text = _parts(line)
        moment, shown = time.decode("ascii", "replace"), _shown(text)
        if moment <= self._end or not shown.strip():
            return []
        return [Piece(moment, shown, is_open=True, is_bar=b"\r" in text)]

    def _content(self, most: int) -> tuple[bytes, bool]:
        """The next bytes, and whether no more are added to their file."""
        names = (f"{self._file}.2", f"{self._file}.1", str(self._file))
        while True:
            # The newest file first: a file that is renamed meanwhile is seen twice, but not missed.
            marks = [_mark(name) for name in reversed(names)][::-1]
            place = self._current(marks)
            try:
                with open(names[place], "rb") as source:  # noqa: PTH123 - by the hundred, ten times a second
                    mark = (os.fstat(source.fileno()).st_ino, source.read(HEAD))
                    if not _is_same(marks[place], mark):
                        continue  # it was renamed
                    if not _is_same(self._mark, mark):
                        self._place = 0
                    self._mark, self._is_read = mark, False
                    source.seek(self._place)
                    content = source.read(most)
            except FileNotFoundError:
                return b"", False
            if place > 0 and marks[0][0]:
                with suppress(FileNotFoundError):
                    os.unlink(names[0])  # noqa: PTH108 - as above
            self._place += len(content)
            return content, place < len(names) - 1

    def _current(self, marks: list[tuple[int, bytes]]) -> int:
        """The file to read: the current one, or the next one after it was read; the oldest if there is none."""
        ours = [place for place, mark in enumerate(marks) if _is_same(self._mark, mark)]
        if ours and not self._is_read:
            return ours[-1]
        first = ours[-1] + 1 if ours else 0
        return next((place for place in range(first, len(marks)) if marks[place][0]), len(marks) - 1)

    def _lines(self, content: bytes) -> list[Piece]:
        *lines, self._rest = (self._rest + content).split(b"\n")
        first = max(0, len(lines) - self._most)
        pieces = [self._skip(lines[:first])] if first else []
        for line in lines[first:]:
            time, tag, text = _parts(line)
            moment, is_end = time.decode("ascii", "replace"), tag != b"P"
            if is_end:
                self._end = moment
            raw = text + b"\n" if is_end else text
            pieces.append(Piece(moment, self._joined(text, is_end), raw))
        return pieces

    def _skip(self, lines: list[bytes]) -> Piece:
        """One piece with the raw output of many lines; a hundred thousand lines a second pass through here."""
        raw, end, count = [], b"", 0
        for line in lines:
            time, tag, text = _parts(line)
            raw.append(text)
            if tag == b"P":
                self._joined(text, is_end=False)
                continue
            raw.append(b"\n")
            end, self._open = time, b""
            count += 1
        moment = end.decode("ascii", "replace")
        self._end = moment or self._end
        return Piece(moment, None, b"".join(raw), skipped=count)

    def _joined(self, text: bytes, is_end: bool) -> str | None:
        """The complete line if this is its last part; None otherwise."""
        line, self._open = self._open + text, b""
        if is_end or len(line) >= LONGEST_LINE:
            return _shown(line)
        self._open = line[_newest(line) :]
        return None


def _parts(line: bytes) -> tuple[bytes, bytes, bytes]:
    """Time, tag and text."""
    time, _, tag, text = [*line.split(b" ", 3), b"", b"", b""][:4]
    return time, tag, text


def _shown(line: bytes) -> str:
    return line[_newest(line) :].partition(b"\r")[0].decode(errors="replace")


def _newest(line: bytes) -> int:
    """The offset of the newest non-blank state of a progress bar: after a carriage return."""
    return line.rstrip(b"\r ").rfind(b"\r") + 1


class Tails:
    """All logs of all observed pods."""

    def __init__(self, folder: Path, most: int = sys.maxsize) -> None:
        """``most`` as in ``Tail``."""
        self._folder = folder / "pods"
        self._most = most
        self._tails: dict[tuple[str, str, int], Tail] = {}
        self._pods: dict[str, None] = {}
        self._changed: set[str] = set()
        self._new: list[Line] = []
        """A line without content for each new log: the log may stay empty."""

    def see(self, uid: str) -> None:
        """Call it when the pod changed: there may be a new attempt."""
        self._pods[uid] = None
        self._changed.add(uid)

    @property
    def has_more(self) -> bool:
        """There is more to read now: of each log only a part was read."""
        return any(tail.has_more for tail in self._tails.values())

    def read(self) -> list[Line]:
        """The lines since the last call, by time."""
        for uid in list(self._changed):
            if self._find(uid):
                self._changed.discard(uid)  # otherwise the node has not started the pod yet
        return self._sorted({key: tail.read() for key, tail in self._tails.items()})

    def finish(self) -> list[Line]:
        """The last lines; call it again while ``has_more``."""
        for uid in self._pods:
            self._find(uid)
        return self._sorted({key: tail.finish() for key, tail in self._tails.items()})

    def _find(self, uid: str) -> bool:
        has_new = False
        for path in sorted((self._folder / uid / "containers").glob("*/*/log")):
            container, attempt = path.parts[-3:-1]
            if attempt.isdecimal():
                key = (uid, container, int(attempt))
                if key not in self._tails:
                    self._tails[key] = Tail(path, self._most)
                    self._new.append(Line("", *key))
                has_new = True
        return has_new

    def _sorted(self, by_log: dict[tuple[str, str, int], list[Piece]]) -> list[Line]:
        lines, self._new = self._new, []
        for key, pieces in by_log.items():
            latest = ""
            for piece in pieces:
                latest = max(latest, piece.time)  # lines of one log keep their order if the clock steps back
                lines.append(Line(latest, *key, piece.text, piece.raw, piece.is_open, piece.is_bar, piece.skipped))
        return sorted(lines, key=lambda line: line.time)


def _inode_and_size(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_ino, status.st_size)


def _mark(name: str) -> tuple[int, bytes]:
    try:
        with open(name, "rb") as source:  # noqa: PTH123 - as above
            return os.fstat(source.fileno()).st_ino, source.read(HEAD)
    except FileNotFoundError:
        return (0, b"")


def _is_same(known: tuple[int, bytes], mark: tuple[int, bytes]) -> bool:
    """A short file may have grown."""
    return known[0] == mark[0] != 0 and mark[1].startswith(known[1])
