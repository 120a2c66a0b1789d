"""Persistent logs of a run: one file for each attempt of each container, with the program's raw output."""

import os
import shutil
import sys
from pathlib import Path

from trainmaster.cli.tail import Line

LIMIT = 1024**3
"""Bytes of the logs of a run, unless the user has chosen the folder."""
_BLOCK = 1024 * 1024


class Archive:
    """Files are named ``<pod>.<container>.<number>.log``. The number counts the attempts under this name: a pod does
    not overwrite the log of an earlier pod of the same name. When all files are larger than ``limit`` bytes, the older
    half of the largest is removed; its first line then says so. Raises ``OSError``."""

    def __init__(self, folder: Path, limit: int = sys.maxsize) -> None:
        self.folder = folder
        self._limit = limit
        self._files: dict[tuple[str, str, int], Path] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._sizes: dict[Path, int] = {}
        self._removed: dict[Path, int] = {}
        """Lines that were removed of each file."""
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def is_empty(self) -> bool:
        return not self._files

    def put(self, pod: str, lines: list[Line]) -> None:
        """Appends lines of one pod, the oldest first."""
        contents: dict[Path, list[bytes]] = {}
        for line in lines:
            contents.setdefault(self._file(pod, line), []).append(line.raw)
        for file, content in contents.items():
            with file.open("ab") as out:
                out.writelines(content)
                self._sizes[file] = out.tell()
        if sum(self._sizes.values()) > self._limit:
            self._halve(max(self._sizes, key=lambda file: self._sizes[file]))

    def _file(self, pod: str, line: Line) -> Path:
        attempt = (line.uid, line.container, line.attempt)
        if attempt not in self._files:
            number = self._counts.get((pod, line.container), 0)
            self._counts[pod, line.container] = number + 1
            file = self.folder / f"{pod}.{line.container}.{number}.log"
            file.unlink(missing_ok=True)  # left by an earlier run
            self._files[attempt] = file
        return self._files[attempt]

    def _halve(self, file: Path) -> None:
        with file.open("rb") as source:
            if file in self._removed:
                source.readline()  # the line about the removed ones
            start = source.tell()
            size = os.fstat(source.fileno()).st_size
            count = self._removed.get(file, 0)
            while source.tell() < (start + size) // 2:
                count += source.read(min(_BLOCK, (start + size) // 2 - source.tell())).count(b"\n")
            count += source.readline(_BLOCK).count(b"\n")
            self._removed[file] = count
            fresh = file.with_name(f".{file.name}.new")
            with fresh.open("wb") as out:
                out.write(f"[trainmaster: {count} earlier lines were removed; --logs DIR keeps all]\n".encode())
                shutil.copyfileobj(source, out, _BLOCK)
                self._sizes[file] = out.tell()
        fresh.replace(file)
