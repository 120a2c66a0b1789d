"""Reads container logs, which shims write, for ``kubectl logs``."""

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
    """The text of one stored line; empty if it is too old. Raises ``ValueError`` if it is not a stored line."""
    moment, _, tag, text = line.split(b" ", 3)
    if options.since and moment.decode() < options.since:
        return b""
    end = b"" if tag == b"P" else b"\n"
    return (moment + b" " if options.timestamps else b"") + text + end


def files_of(log: Path) -> list[Path]:
    """The log and its rotated files, oldest first."""
    older = [log.with_name(f"{log.name}.{number}") for number in (2, 1)]
    return [path for path in (*older, log) if path.exists()]


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
            continue  # an incomplete line, written to a full disk


async def _pieces(log: Path, is_open: Callable[[], bool], options: LogOptions) -> AsyncIterator[bytes]:
    """Whole stored lines, file after file. The shim renames files during the read, so they are identified by inode."""
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
            while piece := _whole_lines(source):  # after a newer file was found: no more lines are added to this one
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
    """The files that contain the last lines, and the offset in the first of them."""
    start = 0
    for index in range(len(files) - 1, -1, -1):
        start, count = tail_start(files[index].read_bytes(), lines)
        lines -= count
        if lines == 0:
            return files[index:], start
    return files, start


def _whole_lines(source: BinaryIO) -> bytes:
    """Reads up to the end of the last whole line; no stored line is as long as a chunk."""
    piece = source.read(CHUNK)
    cut = piece.rfind(b"\n") + 1
    source.seek(cut - len(piece), os.SEEK_CUR)
    return piece[:cut]


def _newer(log: Path, source: BinaryIO) -> list[tuple[Path, int]]:
    """The files that are newer than this one, oldest first, with their inodes; all files if this one was deleted."""
    own = os.fstat(source.fileno()).st_ino
    files = [(path, inode) for path in files_of(log) if (inode := _inode(path)) is not None]
    place = next((place for place, (_, inode) in enumerate(files) if inode == own), -1)
    return files[place + 1 :]


def _opened(path: Path, inode: int) -> BinaryIO | None:
    """Opens the file; None if it was renamed meanwhile: the next poll finds it."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    if os.fstat(file.fileno()).st_ino == inode:
        return file
    file.close()
    return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def since_of(seconds: str, moment: str, now: float) -> str:
    """``sinceSeconds`` or ``sinceTime`` in the time format of the lines."""
    if seconds:
        start = datetime.fromtimestamp(now - int(seconds), UTC)
    elif moment:
        start = datetime.fromisoformat(moment).astimezone(UTC)
    else:
        return ""
    return start.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
