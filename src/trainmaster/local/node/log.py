"""Reading container logs: the lines that a shim wrote, as ``kubectl logs`` asks for them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

CHUNK = 64 * 1024
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 0.4
"""A follower looks more rarely while nothing comes."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    follow: bool = False
    previous: bool = False
    tail: int | None = None
    timestamps: bool = False
    since: str = ""
    """Lines of this time and later, as the lines write it; empty for all."""
    limit: int | None = None
    """Bytes after which the answer ends."""


def rendered(line: bytes, options: LogOptions) -> bytes:
    """One stored line as it is shown; empty when it is too old. Raises ``ValueError`` for what is no such line."""
    moment, _, tag, text = line.split(b" ", 3)
    if options.since and moment.decode() < options.since:
        return b""
    end = b"" if tag == b"P" else b"\n"
    return (moment + b" " if options.timestamps else b"") + text + end


def files_of(log: Path) -> list[Path]:
    """The log with its rotated parts, oldest first."""
    older = [log.with_name(f"{log.name}.{number}") for number in (2, 1)]
    return [path for path in (*older, log) if path.exists()]


def tail_start(content: bytes, lines: int) -> tuple[int, int]:
    """Where the last stored lines of a file begin, and how many there are. Like a kubelet we count stored lines."""
    place, found = content.rfind(b"\n") + 1, 0
    while found < lines and place > 0:
        place = content.rfind(b"\n", 0, place - 1) + 1
        found += 1
    return place, found


async def read_log(log: Path, is_open: Callable[[], bool], options: LogOptions) -> AsyncIterator[bytes]:
    """The log in pieces; with ``follow`` until the container ended and everything was read."""
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
    for line in piece.removesuffix(b"\n").split(b"\n"):  # not splitlines: the text may have carriage returns
        try:
            yield rendered(line, options)
        except ValueError:
            continue  # half of a line, from a disk that was full


async def _pieces(log: Path, is_open: Callable[[], bool], options: LogOptions) -> AsyncIterator[bytes]:
    """Whole stored lines, file after file. The shim renames them while we read: who comes next is known by inode."""
    start, files = 0, files_of(log)
    if options.tail is not None and files:
        files, start = _tail(files, options.tail)
    if not files and not options.follow:
        return
    source: BinaryIO = (files[0] if files else log).open("rb")
    source.seek(start)
    pause = SHORTEST_PAUSE
    try:
        while True:
            was_open, newer = is_open(), _newer(log, source)
            while piece := _whole_lines(source):  # after the look for a newer one: then this one gets no more lines
                pause = SHORTEST_PAUSE
                yield piece
                await asyncio.sleep(0)
            if newer and (following := _opened(*newer[0])):
                source.close()
                source = following
                continue
            if not newer and not (options.follow and was_open):
                return
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)
    finally:
        source.close()


def _tail(files: list[Path], lines: int) -> tuple[list[Path], int]:
    """The files that hold the last lines, and where they begin in the first of them."""
    start = 0
    for index in range(len(files) - 1, -1, -1):
        start, found = tail_start(files[index].read_bytes(), lines)
        lines -= found
        if lines == 0:
            return files[index:], start
    return files, start


def _whole_lines(source: BinaryIO) -> bytes:
    """Up to the end of the last whole line; no stored line is as long as a chunk."""
    piece = source.read(CHUNK)
    cut = piece.rfind(b"\n") + 1
    source.seek(cut - len(piece), os.SEEK_CUR)
    return piece[:cut]


def _newer(log: Path, source: BinaryIO) -> list[tuple[Path, int]]:
    """The files that were begun after this one, oldest first, and their inodes; all of them when this one is gone."""
    own = os.fstat(source.fileno()).st_ino
    files = [(path, inode) for path in files_of(log) if (inode := _inode(path)) is not None]
    place = next((place for place, (_, inode) in enumerate(files) if inode == own), -1)
    return files[place + 1 :]


def _opened(path: Path, inode: int) -> BinaryIO | None:
    """The file; None when it was renamed since, and the next look will find it."""
    try:
        found = path.open("rb")
    except FileNotFoundError:
        return None
    if os.fstat(found.fileno()).st_ino == inode:
        return found
    found.close()
    return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def since_of(seconds: str, moment: str, now: float) -> str:
    """``sinceSeconds`` or ``sinceTime`` in the form in which lines write their time."""
    if seconds:
        start = datetime.fromtimestamp(now - int(seconds), UTC)
    elif moment:
        start = datetime.fromisoformat(moment).astimezone(UTC)
    else:
        return ""
    return start.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
