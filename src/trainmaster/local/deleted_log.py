"""The logs of the last deleted pods of a local cluster: a folder for each pod, in the folder ``logs`` of the node.

A cluster deletes logs with their pods. On a machine of one user they are the only record of a job whose pods were
cleaned up or restarted.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trainmaster.local.disk import remove_folder, write_whole

LOGS = "logs"
MOST_PODS = 200
MOST_BYTES = 1024**3
"""Of all deleted pods."""
_POD = "pod.json"
_METADATA = ("name", "namespace", "uid", "labels", "ownerReferences", "creationTimestamp")


class DeletedPod(msgspec.Struct, frozen=True):
    body: bytes
    """Metadata, and the names of the containers."""
    folder: Path

    @property
    def uid(self) -> str:
        return self.folder.name.partition("-")[2]

    @property
    def logs(self) -> Iterator[tuple[str, int, Path]]:
        """Container, attempt and log, oldest first."""
        for container in sorted(path for path in self.folder.iterdir() if path.is_dir()):
            for attempt in sorted(container.iterdir(), key=lambda path: int(path.name)):
                yield container.name, int(attempt.name), attempt / "log"


def keep(node: Path, pod: dict[str, Any], folder: Path) -> None:
    """Moves the logs of a pod from its folder. Removes the oldest kept ones beyond the limits. Raises ``OSError``."""
    logs = node / LOGS
    logs.mkdir(mode=0o700, exist_ok=True)
    # The time orders the pods. Without pod.json the folder is not complete.
    kept = logs / f"{time.time_ns():020}-{pod['metadata']['uid']}"
    for log in folder.glob("containers/*/*/log"):
        attempt = log.parent
        for other in attempt.iterdir():
            if not other.name.startswith("log"):
                _remove(other)
        # The folder and not its files: those who read the log go on.
        (kept / attempt.parent.name).mkdir(mode=0o700, parents=True, exist_ok=True)
        attempt.rename(kept / attempt.parent.name / attempt.name)
    if kept.exists():
        write_whole(kept / _POD, msgspec.json.encode(_identity(pod)))
    _prune(logs)


def deleted_pods(node: Path) -> list[DeletedPod]:
    """Oldest first."""
    found = []
    for folder in sorted((node / LOGS).glob("*-*")):
        try:
            found.append(DeletedPod((folder / _POD).read_bytes(), folder))
        except OSError:
            continue  # it is being removed
    return found


def _identity(pod: dict[str, Any]) -> dict[str, Any]:
    """Without the environment, which may contain secrets."""
    spec = {
        part: [{"name": container["name"]} for container in pod["spec"].get(part) or ()]
        for part in ("containers", "initContainers")
    }
    metadata = {name: pod["metadata"][name] for name in _METADATA if name in pod["metadata"]}
    return {"metadata": metadata, "spec": spec}


def _remove(path: Path) -> None:
    if path.is_dir():
        remove_folder(path)
    else:
        path.unlink()


def _prune(logs: Path) -> None:
    size = 0
    for count, folder in enumerate(sorted(logs.iterdir(), reverse=True), start=1):
        size += sum(file.stat().st_size for file in _files(folder))
        if count > 1 and (count > MOST_PODS or size > MOST_BYTES):
            remove_folder(folder)


def _files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        yield from (Path(root) / name for name in names)
