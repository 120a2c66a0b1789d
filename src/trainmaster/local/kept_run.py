"""The logs of the last runs: a folder for each of them, in the folder ``runs`` of the state folder."""

import fcntl
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from trainmaster.local.disk import remove_folder

RUNS = "runs"
MOST_RUNS = 10
MOST_BYTES = 2 * 1024**3
"""Of all runs that have ended."""


@contextmanager
def kept_run(folder: Path, name: str, now: datetime) -> Iterator[Path]:
    """The folder of a new run, locked until the block ends; it is removed if it is empty then. Removes the oldest runs
    that have ended, beyond the limits. Raises ``OSError``."""
    runs = folder / RUNS
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    runs.mkdir(mode=0o700, exist_ok=True)
    prune(runs)
    run = _new(runs, f"{now:%Y-%m-%dT%H%M%S}-{name}")
    descriptor = _locked(run)
    try:
        yield run
    finally:
        if not any(run.iterdir()):
            run.rmdir()
        if descriptor is not None:
            os.close(descriptor)


def prune(runs: Path, *, most_runs: int = MOST_RUNS, most_bytes: int = MOST_BYTES) -> None:
    """Leaves room for one run more. Names begin with the time, so they are in the order of the runs."""
    count = size = 0
    for run in sorted((path for path in runs.iterdir() if path.is_dir()), reverse=True):
        descriptor = _locked(run)
        if descriptor is None:
            continue  # it has not ended
        try:
            count += 1
            size += sum(file.stat().st_size for file in run.iterdir())
            if count >= most_runs or size > most_bytes:
                remove_folder(run)
        finally:
            os.close(descriptor)


def _new(runs: Path, name: str) -> Path:
    for number in itertools.count(1):
        run = runs / (name if number == 1 else f"{name}-{number}")
        try:
            run.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return run
    raise AssertionError  # the count has no end


def _locked(run: Path) -> int | None:
    """The descriptor that holds the lock; None if another process holds it. The kernel releases it with the process."""
    descriptor = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
