"""Writes files that may contain secrets (environments, tokens): atomic, and readable by their user only."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any


def write_whole(file: Path, content: bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Replaces a file atomically: a reader sees the old or the new content, and a full disk leaves the old one.

    ``durable`` files are synced before they are renamed, so that they survive a power failure.
    """
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(content)
            out.flush()
            if durable:
                os.fsync(out.fileno())
        fresh.chmod(mode)
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def remove_folder(folder: Path) -> None:
    """Removes a folder, also files and folders whose permissions a program has removed."""

    def make_writable_and_retry(function: Any, path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            for place in (Path(path).parent, Path(path)):
                if not place.is_symlink():
                    place.chmod(0o700)
            if Path(path).is_dir() and function is not os.rmdir:
                shutil.rmtree(path, ignore_errors=True)
            else:
                function(path)

    if folder.exists():
        shutil.rmtree(folder, onerror=make_writable_and_retry)
