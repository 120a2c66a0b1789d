"""Persistent logs of a run: one file for each attempt of each container, with the program's raw output."""

from pathlib import Path

from trainmaster.cli.tail import Line
from trainmaster.core.errors import BadConfig


class Archive:
    """Files are named ``<pod>.<container>.<number>.log``. The number counts the attempts under this name: a pod does
    not overwrite the log of an earlier pod of the same name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[tuple[str, str, int], Path] = {}
        self._counts: dict[tuple[str, str], int] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadConfig(f"--logs {folder}: {error.strerror}; choose another folder") from error

    def put(self, pod: str, lines: list[Line]) -> None:
        """Appends lines of one pod, the oldest first. Raises ``OSError`` if a write fails."""
        contents: dict[Path, list[bytes]] = {}
        for line in lines:
            contents.setdefault(self._file(pod, line), []).append(line.raw)
        for file, content in contents.items():
            with file.open("ab") as out:
                out.writelines(content)

    def _file(self, pod: str, line: Line) -> Path:
        attempt = (line.uid, line.container, line.attempt)
        if attempt not in self._files:
            number = self._counts.get((pod, line.container), 0)
            self._counts[pod, line.container] = number + 1
            file = self.folder / f"{pod}.{line.container}.{number}.log"
            file.unlink(missing_ok=True)  # left by an earlier run
            self._files[attempt] = file
        return self._files[attempt]
