"""Files of the node: whole or not at all, and for nobody else's eyes. They hold environments, and so secrets."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any


def write_whole(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file in one step: whoever reads it sees the old or the new content."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_bytes(content)
    fresh.chmod(mode)
    fresh.replace(file)


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
