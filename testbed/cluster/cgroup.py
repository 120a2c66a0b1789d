"""The cgroups of the nodes: a subtree of their own in every hierarchy, with one limit for all pods together."""

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NAME = "trainmaster-cluster"
TRIES = 20
PAUSE = 0.25


def hierarchies() -> list[Path]:
    """Where cgroups can be created: several in version 1, one in version 2."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return sorted(each for each in ROOT.iterdir() if (each / "tasks").exists() and not each.is_symlink())


def path_of(node: str) -> str:
    """The cgroup of a node, as kubelet names it."""
    return f"/{NAME}/{node}"


def create(node: str) -> None:
    """Create the cgroup of a node."""
    for hierarchy in hierarchies():
        for folder in (hierarchy / NAME, hierarchy / NAME / node):
            folder.mkdir(exist_ok=True)
            # In version 1 a cpuset is empty at first, and nothing can run in it.
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (folder / file).exists() and not (folder / file).read_text().strip():
                    (folder / file).write_text((folder.parent / file).read_text())
        for file in ("memory.limit_in_bytes", "memory.max"):
            if (hierarchy / NAME / file).exists():
                (hierarchy / NAME / file).write_text(str(_half_of_memory()))


def remove(node: str = "") -> None:
    """Remove the cgroups of a node, or of all: a kubelet waits for each one that is left from before."""
    for _ in range(TRIES):
        # In all hierarchies: where both versions are mounted, runc creates some beside ours.
        left = [folder for parent in (ROOT, *ROOT.iterdir()) if (folder := parent / NAME / node).is_dir()]
        for folder in left:
            _remove(folder)
        if not any(folder.exists() for folder in left):
            return
        time.sleep(PAUSE)
    raise OSError(f"the cgroup {left[0]} cannot be removed: processes are left in it")


def _remove(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        # Busy for a moment after its last process was killed.
        with contextlib.suppress(OSError):
            Path(path).rmdir()


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
