"""Files that hold environments and tokens, and so secrets: whole or not at all, and for nobody else's eyes."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any


def write_whole(file: Path, content: bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Replace a file in one step: whoever reads it sees the old or the new content. A full disk leaves the old one.

    What is ``durable`` is on the disk before it is in its place: it must outlive a power cut.
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
    """All of it, also what a program took its own rights to."""

    def opened(function: Any, path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            for place in (Path(path).parent, Path(path)):
                if not place.is_symlink():
                    place.chmod(0o700)
            if Path(path).is_dir() and function is not os.rmdir:
                shutil.rmtree(path, ignore_errors=True)
            else:
                function(path)

    if folder.exists():
        shutil.rmtree(folder, onerror=opened)
