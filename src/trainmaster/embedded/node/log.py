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
    for line in piece.splitlines():
        try:
            yield rendered(line, options)
        except ValueError:
            continue  # half of a line, from a disk that was full


async def _pieces(log: Path, is_open: Callable[[], bool], options: LogOptions) -> AsyncIterator[bytes]:
    """Whole stored lines."""
    start = 0
    files = files_of(log)
    if options.tail is not None and files:
        files, start = _tail(files, options.tail)
    for file in files[:-1]:
        async for piece in _read(file, start):
            yield piece
        start = 0
    if not options.follow:
        if files:
            async for piece in _read(files[-1], start):
                yield piece
        return
    async for piece in _follow(log, start, is_open):
        yield piece


def _tail(files: list[Path], lines: int) -> tuple[list[Path], int]:
    """The files that hold the last lines, and where they begin in the first of them."""
    start = 0
    for index in range(len(files) - 1, -1, -1):
        start, found = tail_start(files[index].read_bytes(), lines)
        lines -= found
        if lines == 0:
            return files[index:], start
    return files, start


async def _read(file: Path, start: int) -> AsyncIterator[bytes]:
    with file.open("rb") as source:
        source.seek(start)
        while piece := _whole_lines(source):
            yield piece
            await asyncio.sleep(0)


def _whole_lines(source: BinaryIO) -> bytes:
    """Up to the end of the last whole line; no stored line is as long as a chunk."""
    piece = source.read(CHUNK)
    cut = piece.rfind(b"\n") + 1
    source.seek(cut - len(piece), os.SEEK_CUR)
    return piece[:cut]


async def _follow(log: Path, start: int, is_open: Callable[[], bool]) -> AsyncIterator[bytes]:
    pause = SHORTEST_PAUSE
    source = log.open("rb")
    source.seek(start)
    try:
        while True:
            was_open = is_open()
            if piece := _whole_lines(source):
                pause = SHORTEST_PAUSE
                yield piece
                continue
            if _is_rotated(log, source.fileno()):
                source.close()
                source = log.open("rb")
                continue
            if not was_open:
                return
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)
    finally:
        source.close()


def _is_rotated(log: Path, descriptor: int) -> bool:
    try:
        return log.stat().st_ino != os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def since_of(seconds: str, moment: str, now: float) -> str:
    """``sinceSeconds`` or ``sinceTime`` in the form in which lines write their time."""
    if seconds:
        start = datetime.fromtimestamp(now - int(seconds), UTC)
    elif moment:
        start = datetime.fromisoformat(moment).astimezone(UTC)
    else:
        return ""
    return start.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
