"""The protocol of ``kubectl exec`` on a WebSocket: ``v5.channel.k8s.io``, and v4, which cannot end the input.

The first byte of a message is its channel. A result is a Status on the channel for errors, after all output.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from trainmaster.local.node.session import Options, Session
from trainmaster.local.node.terminal import Terminal

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
LARGEST_MESSAGE = 1024 * 1024
CHUNK = 32 * 1024
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255


class _Size(msgspec.Struct, rename="pascal"):
    width: int = 0
    height: int = 0


def options_of(query: Mapping[str, str], command: list[str]) -> Options:
    flags = {word: query.get(word, "").lower() in ("true", "1") for word in ("stdin", "stdout", "stderr", "tty")}
    return Options(command=command, **flags)


async def serve_session(request: web.Request, session: Session) -> web.StreamResponse:
    """Copies input and output until the command or the connection ends; then both have ended."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=LARGEST_MESSAGE, compress=False)
    tasks: list[asyncio.Task[None]] = []
    try:
        await socket.prepare(request)
        tasks = [asyncio.create_task(each) for each in (_input(socket, session), _output(socket, session))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except ConnectionError:
        pass  # the client is gone
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await session.close()
    with contextlib.suppress(ConnectionError):
        await socket.close()
    return socket


async def _input(socket: web.WebSocketResponse, session: Session) -> None:
    async for message in socket:
        data = message.data if message.type is aiohttp.WSMsgType.BINARY else b""
        match data[:1]:
            case b"\x00":
                await session.write(data[1:])
            case b"\x04":
                with contextlib.suppress(msgspec.MsgspecError):
                    size = msgspec.json.decode(data[1:], type=_Size)
                    session.resize(size.width, size.height)
            case b"\xff" if data[1:] == bytes([STDIN]):
                session.end_input()


async def _output(socket: web.WebSocketResponse, session: Session) -> None:
    streams = ((STDOUT, session.stdout), (STDERR, session.stderr))
    await asyncio.gather(*(_copy(socket, channel, stream) for channel, stream in streams if stream is not None))
    await socket.send_bytes(bytes([ERROR]) + msgspec.json.encode(_status(await session.code())))


async def _copy(socket: web.WebSocketResponse, channel: int, stream: asyncio.StreamReader | Terminal) -> None:
    while data := await stream.read(CHUNK):
        await socket.send_bytes(bytes([channel]) + data)


def _status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
