"""One attempt of a container: its folder and its shim, which this node or an earlier one started."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from trainmaster.core.errors import Trainmaster
from trainmaster.local.disk import write_whole
from trainmaster.local.node.pod import Object
from trainmaster.local.node.process import pod_of, send, sweep, when_ended
from trainmaster.local.node.record import Ended

S = TypeVar("S")

START_SECONDS = 60.0
LOST = "the shim of this container was killed, and the container with it"


class CannotStart(Trainmaster):
    """The machine could not start a process; the container's spec may be correct."""


class Started(msgspec.Struct, rename="camel"):
    pid: int = 0
    started_at: str = ""
    error: str = ""


class Attempt:
    """``on_end`` is called once, when the shim has ended and ``ended`` is set."""

    def __init__(self, folder: Path, on_end: Callable[[], None]) -> None:
        self.folder = folder
        self.number = int(folder.name)
        self.pid = 0
        """The pid of the container's main process."""
        self.started_at = ""
        self.ended: Ended | None = None
        self._shim = 0
        self._why_not = ""
        self._on_end = on_end
        self._over = asyncio.Event()
        self._unwatch: Callable[[], None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def shim(self) -> int:
        """The pid of its shim; 0 if that has ended."""
        return self._shim

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def spec(self) -> Object:
        spec: Object = msgspec.json.decode((self.folder / "spec.json").read_bytes())
        return spec

    async def start(self, spec: Object, environ: Mapping[str, str], shim: Sequence[str]) -> None:
        """Returns when the program runs or has failed to start."""
        receiver, sender = os.pipe()
        try:
            self._shim = _spawn([*shim, "run", str(self._prepare(spec))], environ, sender)
        except OSError as error:
            os.close(receiver)
            shutil.rmtree(self.folder, ignore_errors=True)
            raise CannotStart(f"cannot start a process: {error}") from error
        finally:
            os.close(sender)
        self._unwatch = when_ended(self._shim, self._shim_ended)
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await _line(receiver)
        except TimeoutError:
            self.kill()
            line = b""
        if line:
            started = msgspec.json.decode(line, type=Started)
            self.pid, self.started_at, self._why_not = started.pid, started.started_at, started.error
        if not self.pid:
            await self._over.wait()

    def _prepare(self, spec: Object) -> Path:
        self.folder.mkdir(mode=0o700, parents=True)
        (self.folder / "message").touch(mode=0o666)
        file = self.folder / "spec.json"
        write_whole(file, msgspec.json.encode(spec))
        return file

    def adopt(self, shims: Mapping[str, int]) -> bool:
        """Adopts the attempt on disk; False if it was never started. ``end_orphans`` has ended what has no shim."""
        file = self.folder / "spec.json"
        started = _decoded(self.folder / "running.json", Started)
        if started is not None:
            self.pid, self.started_at = started.pid, started.started_at
        self.ended = _decoded(self.folder / "exit.json", Ended)
        if self.ended is not None:
            self.started_at = self.ended.started_at
            self._over.set()
            return True
        shim = shims.get(str(file), 0)
        if shim:
            self._shim = shim
            # The shim runs and its program does not yet: it follows within milliseconds.
            self.started_at = self.started_at or _moment()
            self._unwatch = when_ended(shim, self._shim_ended)
            return True
        if started is None:
            return False
        self._lose()
        return True

    def main_pid(self) -> int:
        """The pid of the program; an adopted shim may have written it only now."""
        if not self.pid and (started := _decoded(self.folder / "running.json", Started)):
            self.pid = started.pid
        return self.pid

    def runs(self) -> bool:
        return self.ended is None and self.main_pid() != 0

    def detach(self) -> None:
        """Lets the attempt run and stops watching it."""
        if self._unwatch is not None:
            self._unwatch()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the program and all its descendants."""
        self._send(signal.SIGUSR1)

    def _send(self, number: int) -> None:
        if self._shim and not self._over.is_set():
            send(self._shim, number)

    def _shim_ended(self) -> None:
        self._shim = 0  # its number may be given to another process
        ended = _decoded(self.folder / "exit.json", Ended)
        if ended is not None:
            self._end(ended)
        else:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def _sweep(self) -> None:
        """Kills processes that a killed shim left behind; a shim that exits normally leaves none. In a thread: it may
        take a second."""
        spec = self.spec
        await asyncio.to_thread(sweep, spec["uid"], spec["container"])
        self._lose()

    def _lose(self) -> None:
        ended = Ended(137, "Error", self.started_at or _moment(), _moment(), self._why_not or LOST, signal.SIGKILL)
        with contextlib.suppress(OSError):  # the disk is full: the end is then known only in memory
            write_whole(self.folder / "exit.json", msgspec.json.encode(ended))
        self._end(ended)

    def _end(self, ended: Ended) -> None:
        self.ended, self.started_at = ended, ended.started_at
        self._over.set()
        self._on_end()


def end_orphans(folder: Path, shims: Mapping[str, int]) -> None:
    """Ends the processes of a node's containers whose shims were killed while no node ran."""
    for spec in folder.glob("pods/*/containers/*/*/spec.json"):
        if str(spec) not in shims and not spec.with_name("exit.json").exists():
            sweep(pod_of(str(spec)), spec.parts[-3])


def attempts_in(folder: Path) -> list[Path]:
    """The attempts of a container on disk, oldest first."""
    if not folder.is_dir():
        return []
    folders = (path for path in folder.iterdir() if path.name.isdecimal() and (path / "spec.json").exists())
    return sorted(folders, key=lambda path: int(path.name))


def _moment() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())


def _decoded(file: Path, kind: type[S]) -> S | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def _spawn(command: list[str], environ: Mapping[str, str], stdout: int) -> int:
    """Starts a process in a session of its own: neither Ctrl-C nor the end of the node reaches it."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, stdout, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    return os.posix_spawn(command[0], command, environ, file_actions=actions, setsid=True)


async def _line(receiver: int) -> bytes:
    """Reads one line of a pipe without a thread; empty if the pipe was closed before."""
    loop = asyncio.get_running_loop()
    os.set_blocking(receiver, False)
    done: asyncio.Future[bytes] = loop.create_future()
    line = bytearray()

    def read() -> None:
        piece = os.read(receiver, 65536)
        line.extend(piece)
        if (not piece or piece.endswith(b"\n")) and not done.done():
            done.set_result(bytes(line))

    loop.add_reader(receiver, read)
    try:
        return await done
    finally:
        loop.remove_reader(receiver)
        os.close(receiver)
