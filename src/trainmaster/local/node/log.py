"""Reads container logs, which shims write, for ``kubectl logs``."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from trainmaster.local.node.shim import LOG_FILES, LOG_LIMIT

CHUNK = 64 * 1024
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 0.4
"""The polling interval of a follower grows to this while there are no new lines."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    follow: bool = False
    previous: bool = False
    tail: int | None = None
    timestamps: bool = False
    since: str = ""
    """Only lines of this time and later, in the format of the lines; empty for all."""
    limit: int | None = None
    """Maximum number of bytes of the answer."""


def rendered(line: bytes, options: LogOptions) -> bytes:
    """The text of one stored line; empty if it is too old. Raises ``ValueError`` if it is not a stored line: it is the
    number at the beginning of a file, or incomplete."""
    moment, _, tag, text = line.split(b" ", 3)
    if options.since and moment.decode() < options.since:
        return b""
    end = b"" if tag == b"P" else b"\n"
    return (moment + b" " if options.timestamps else b"") + text + end


def tail_start(content: bytes, lines: int) -> tuple[int, int]:
    """The offset of the last stored lines of a file, and their number. As in a kubelet, stored lines count."""
    place, count = content.rfind(b"\n") + 1, 0
    while count < lines and place > 0:
        place = content.rfind(b"\n", 0, place - 1) + 1
        count += 1
    return place, count


async def read_log(log: Path, is_open: Callable[[], bool], options: LogOptions) -> AsyncIterator[bytes]:
    """The log in pieces; with ``follow`` until the container has ended and everything was read."""
    left = options.limit
    async for piece in _pieces(log, is_open, options):
        shown = b"".join(_shown(piece, options))
        if left is not None:
            shown = shown[:left]
            left -= len(shown)
        if shown:
            yield shown
        if left == 0:
            return


def _shown(piece: bytes, options: LogOptions) -> Iterator[bytes]:
    for line in piece.removesuffix(b"\n").split(b"\n"):  # not splitlines: the text may contain carriage returns
        try:
            yield rendered(line, options)
        except ValueError:
            continue


async def _pieces(log: Path, is_open: Callable[[], bool], options: LogOptions) -> AsyncIterator[bytes]:
    """Whole stored lines, file after file. Where files were replaced before they were read, a line says how many lines
    are missing."""
    files = LogFiles(log)
    source = None
    try:
        source, passed = files.first(options.tail)
        pause = SHORTEST_PAUSE
        while True:
            if source.tell() == 0:
                gap, passed = _begin(source, passed)
                if gap:
                    yield gap
            was_open, newer = is_open(), files.newer(source)
            while piece := _whole_lines(source):  # after a newer file was found: no more lines are added to this one
                pause = SHORTEST_PAUSE
                passed += piece.count(b"\n")
                yield piece
                await asyncio.sleep(0)
            if newer and (following := files.opened(*newer[0])):
                source.close()
                source = following
                continue
            if not newer and not (options.follow and was_open):
                return
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)
    except FileNotFoundError:
        if options.follow:
            raise
    finally:
        if source:
            source.close()
        files.close()


class LogFiles:
    """The files of a log, by names that the shim changes at any time. They are found also after their folder was
    renamed, as it is when the pod is deleted."""

    def __init__(self, log: Path) -> None:
        self._names = [log.name, *(f"{log.name}.{number}" for number in range(1, LOG_FILES))]
        """Newest first: in this order a file that is renamed meanwhile is seen twice, but not missed."""
        self._folder = os.open(log.parent, os.O_RDONLY)

    def close(self) -> None:
        os.close(self._folder)

    def newer(self, source: BinaryIO | None) -> list[tuple[str, int]]:
        """The files that are newer than this one, oldest first, with their inodes; all files if this one was deleted,
        or if there is none. Empty ones have just been created."""
        own = os.fstat(source.fileno()).st_ino if source else 0
        found: dict[int, str] = {}
        for name in self._names:
            status = self._status(name)
            if status and status.st_ino == own:
                break
            if status and status.st_size:
                found[status.st_ino] = name
        return [(name, inode) for inode, name in reversed(found.items())]

    def opened(self, name: str, inode: int) -> BinaryIO | None:
        """Opens the file; None if it was renamed meanwhile: the next poll finds it."""
        file = self._open(name)
        if file and os.fstat(file.fileno()).st_ino != inode:
            file.close()
            return None
        return file

    def first(self, tail: int | None) -> tuple[BinaryIO, int]:
        """The file with the first line to read, at that line, and the number of stored lines before it; 0 at the
        beginning of a file, which has the number. Raises ``FileNotFoundError``."""
        while files := self.newer(None):
            if found := self._oldest(files) if tail is None else self._with_last(files, tail):
                return found
        if source := self._open(self._names[0]):  # nothing is written yet
            return source, 0
        raise FileNotFoundError(self._names[0])

    def _oldest(self, files: list[tuple[str, int]]) -> tuple[BinaryIO, int] | None:
        """None if the file was renamed meanwhile."""
        source = self.opened(*files[0])
        return (source, 0) if source else None

    def _with_last(self, files: list[tuple[str, int]], lines: int) -> tuple[BinaryIO, int] | None:
        """None if a file was renamed meanwhile."""
        for name, inode in reversed(files):
            source = self.opened(name, inode)
            if source is None:
                return None
            _, before = _begin(source, 0)
            head, content = source.tell(), source.read()
            start, count = tail_start(content, lines)
            lines -= count
            if lines == 0:
                source.seek(head + start)
                return source, before + content.count(b"\n", 0, start)
            source.close()
        return self._oldest(files)

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._folder)
        except FileNotFoundError:
            return None

    def _open(self, name: str) -> BinaryIO | None:
        try:
            return os.fdopen(os.open(name, os.O_RDONLY, dir_fd=self._folder), "rb")
        except FileNotFoundError:
            return None


def _begin(source: BinaryIO, passed: int) -> tuple[bytes, int]:
    """Reads the number of lines before this file, if there is one. If more than ``passed`` are before it, returns a
    stored line that says so; and the number."""
    moment, _, number = source.readline().rstrip(b"\n").partition(b" ")
    if not number.isdigit():
        source.seek(0)
        return b"", passed
    before = int(number)
    gap = f" stdout F {missing(before - passed)}\n".encode()
    return moment + gap if before > passed else b"", before


def missing(lines: int) -> str:
    kept = LOG_FILES * LOG_LIMIT // 1024**2
    return f"[trainmaster: {lines} lines are missing here; of each container the newest {kept} MiB are kept]"


def _whole_lines(source: BinaryIO) -> bytes:
    """Reads up to the end of the last whole line; no stored line is as long as a chunk."""
    piece = source.read(CHUNK)
    cut = piece.rfind(b"\n") + 1
    source.seek(cut - len(piece), os.SEEK_CUR)
    return piece[:cut]


def since_of(seconds: str, moment: str, now: float) -> str:
    """``sinceSeconds`` or ``sinceTime`` in the time format of the lines."""
    if seconds:
        start = datetime.fromtimestamp(now - int(seconds), UTC)
    elif moment:
        start = datetime.fromisoformat(moment).astimezone(UTC)
    else:
        return ""
    return start.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
