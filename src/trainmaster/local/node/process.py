"""Processes of this machine: find them, wait for their end, and kill what a dead shim left behind."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POD_UID = "TRAINMASTER_POD_UID"
CONTAINER = "TRAINMASTER_CONTAINER"
"""Every process of a container has these variables in its environment, also after it was reparented."""

RUN, SESSION = "run", "session"
"""Modes of a shim: it runs a container, or a command that a client has started in one."""

SWEEPS = 50
SWEEP_PAUSE = 0.02
POLL_SECONDS = 0.2


def pids() -> Iterator[int]:
    try:
        names = [path.name for path in Path("/proc").iterdir()]
    except OSError:  # not Linux: there is no /proc
        return
    yield from (int(name) for name in names if name.isdecimal())


def running_shims(folder: Path, *modes: str) -> dict[str, int]:
    """The running shims of a node that has this folder, by their spec file: those of containers, or those that were
    started in these modes."""
    wanted = {mode.encode() for mode in modes or (RUN,)}
    place = f"{folder.resolve()}{os.sep}"  # the node writes resolved paths
    shims: dict[str, int] = {}
    for pid in pids():
        words = _words(pid, "cmdline")
        if len(words) > 2 and words[-2] in wanted and b"/shim." in words[-3] and _is_ours(pid):
            spec = os.fsdecode(words[-1])
            if spec.startswith(place):
                shims.setdefault(spec, pid)  # a shim that forks is there twice until its child runs the program
    return shims


def pod_of(spec: str) -> str:
    """The uid of the pod that a spec file belongs to: pods/<uid>/containers/<name>/<attempt>/spec.json."""
    return Path(spec).parts[-5]


def parent_of(pid: int) -> int:
    """0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _is_ours(pid: int) -> bool:
    """Everybody can read command lines, and write one that looks like a shim's."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:  # the process has ended
        return False


def _words(pid: int, file: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:  # the process has ended, or belongs to another user
        return []


def marked(uid: str, container: str = "") -> list[int]:
    """The processes of a pod, or of one of its containers."""
    wanted = {f"{POD_UID}={uid}".encode()} | ({f"{CONTAINER}={container}".encode()} if container else set())
    return [pid for pid in pids() if pid != os.getpid() and wanted <= set(_words(pid, "environ"))]


def sweep(uid: str, container: str = "") -> int:
    """Kills all processes of a pod or container and returns their number. A fork bomb is given up after a second."""
    ended: set[int] = set()
    for _ in range(SWEEPS):
        pids_left = marked(uid, container)
        if not pids_left:
            break
        ended.update(pids_left)
        for pid in pids_left:
            send(pid, signal.SIGKILL)
        time.sleep(SWEEP_PAUSE)
    return len(ended)


def send(pid: int, number: int) -> None:
    """A process that has ended, or that now belongs to another user, gets no signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


Cancel = Callable[[], None]


def when_ended(pid: int, then: Callable[[], None]) -> Cancel:
    """Calls back once when a process has ended, also if it is not a child. Uses pidfd if available, else polling."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return loop.call_soon(then).cancel
    except (AttributeError, OSError):  # not Linux, or older than 5.3
        polling = loop.create_task(_poll(pid, then))

        def give_up() -> None:
            polling.cancel()

        return give_up

    is_open = True

    def close() -> None:
        nonlocal is_open
        if is_open:  # after a close the descriptor may belong to another file
            is_open = False
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def ended() -> None:
        close()
        _reap(pid)
        then()

    loop.add_reader(descriptor, ended)
    return close


async def _poll(pid: int, then: Callable[[], None]) -> None:
    while not _reap(pid) and _exists(pid):  # noqa: ASYNC110  there is no event to wait for
        await asyncio.sleep(POLL_SECONDS)
    then()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # started by an earlier node
        return False
