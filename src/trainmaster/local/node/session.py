"""A command that a client runs inside a running container, with pipes or a terminal: ``kubectl exec`` and ``cp``."""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trainmaster.local.disk import write_whole
from trainmaster.local.node.probe import Target
from trainmaster.local.node.process import SESSION, send
from trainmaster.local.node.terminal import Terminal

_DEFAULTS_OF_TERMINAL = {"TERM": "xterm"}

_numbers = itertools.count()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    command: Sequence[str]
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class Session:
    """``stdout`` and ``stderr`` are None where the client did not ask for them; a terminal has no stderr."""

    def __init__(self, file: Path, process: asyncio.subprocess.Process, terminal: Terminal | None) -> None:
        self._file = file
        self._process = process
        self._terminal = terminal
        self.stdout = terminal or process.stdout
        self.stderr = process.stderr

    @classmethod
    async def start(cls, options: Options, target: Target) -> "Session":
        """Raises OSError if the machine cannot start a process."""
        file = target.folder / f"session-{os.getpid()}-{next(_numbers)}.json"
        env = {**(_DEFAULTS_OF_TERMINAL if options.tty else {}), **target.env}
        spec = {
            "argv": list(options.command),
            "env": env,
            "cwd": target.cwd,
            "pid": target.pid,
            "limits": dict(target.limits),
            "tty": options.tty,
            "owner": os.getpid(),
        }
        write_whole(file, msgspec.json.encode(spec))
        command = [*target.shim, SESSION, str(file)]
        try:
            if options.tty:
                return cls(file, *await _in_terminal(command, env))
            return cls(file, await _with_pipes(command, env, options), None)
        except BaseException:
            file.unlink(missing_ok=True)
            raise

    async def write(self, data: bytes) -> None:
        """What the command does not want to read is dropped."""
        if self._terminal is not None:
            await self._terminal.write(data)
        elif self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(data)
                await self._process.stdin.drain()

    def end_input(self) -> None:
        """The input of a terminal has no end but Ctrl-D."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def resize(self, width: int, height: int) -> None:
        if self._terminal is not None:
            self._terminal.resize(width, height)

    async def code(self) -> int:
        """The exit code, when the command has ended; 128 + N after signal N."""
        return await self._process.wait()

    def kill(self) -> None:
        """Kills the command and all that it started."""
        if self._process.returncode is None:
            send(self._process.pid, signal.SIGTERM)

    async def close(self) -> None:
        self.kill()
        await self._process.wait()
        self._file.unlink(missing_ok=True)
        self.end_input()
        if self._terminal is not None:
            self._terminal.close()


async def _with_pipes(command: Sequence[str], env: Mapping[str, str], options: Options) -> asyncio.subprocess.Process:
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=pipe if options.stdin else null,
        stdout=pipe if options.stdout else null,
        stderr=pipe if options.stderr else null,
        start_new_session=True,
    )


async def _in_terminal(command: Sequence[str], env: Mapping[str, str]) -> tuple[asyncio.subprocess.Process, Terminal]:
    terminal = Terminal()
    inner = terminal.inner
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=env, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        )
    except BaseException:
        terminal.close()
        raise
    finally:
        terminal.started()
    return process, terminal
