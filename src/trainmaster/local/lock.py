"""A lock file (flock) that contains the pid of its holder. The kernel releases it when the process ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Taken(Exception):
    """Another process holds the lock; ``holder`` is its pid, 0 if it has not written its pid yet."""

    def __init__(self, holder: int) -> None:
        super().__init__(f"process {holder} has it")
        self.holder = holder


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds the lock until the block ends. Raises Taken, and OSError if the file cannot be created."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Taken(_pid_in(descriptor)) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder_of(file: Path) -> int | None:
    """The pid of the process that holds the lock; None if there is none, 0 if it has not written its pid yet."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _pid_in(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).decode("ascii", "ignore").strip()
    return int(text) if text.isdecimal() else 0
