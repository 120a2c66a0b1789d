"""A real kubectl."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

SECONDS = 30


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Kubectl:
    """The program, as a user runs it."""

    def __init__(self, program: Path, kubeconfig: Path, home: Path) -> None:
        self.command = [str(program), f"--kubeconfig={kubeconfig}"]
        self.environ = {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath)}

    async def start(self, *arguments: str, editor: str = "") -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.command,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self.environ, **({"KUBE_EDITOR": editor} if editor else {})},
        )

    async def run(self, *arguments: str, input: str = "", editor: str = "") -> Done:  # noqa: A002 – subprocess' word
        process = await self.start(*arguments, editor=editor)
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate(input.encode())
        return Done(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, *arguments: str, input: str = "", editor: str = "") -> str:  # noqa: A002
        """Its output; fails if the command fails or writes to stderr."""
        done = await self.run(*arguments, input=input, editor=editor)
        assert (done.code, done.err) == (0, ""), done
        return done.out

    @asynccontextmanager
    async def background(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await self.start(*arguments)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            await process.communicate()


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]
