"""pods/portforward: each connection of the client is one to the pod's address, which is on this machine.

kubectl 1.31 and newer sends SPDY frames inside of a WebSocket. A connection has two streams with the same request id:
one for the data, and one on which the server says what went wrong.
"""

import asyncio
import contextlib
import os
from typing import Any

import aiohttp
from aiohttp import web

from trainmaster.local.apiserver.http.status import bad_request
from trainmaster.local.apiserver.kubectl import spdy
from trainmaster.local.apiserver.kubectl.exec import chosen_protocol

Object = dict[str, Any]

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
CONNECT_SECONDS = 10.0
CONNECTIONS = 512
"""At once, of one kubectl."""
CHUNK = 32 * 1024


async def port_forward(request: web.Request, pod: Object) -> web.StreamResponse:
    """Forwards until the client ends; raises Refusal."""
    name = pod["metadata"]["name"]
    if not pod.get("spec", {}).get("nodeName"):
        raise bad_request(f"pod {name} does not have a host assigned")
    address = pod.get("status", {}).get("podIP", "")
    if pod.get("status", {}).get("phase") != "Running" or not address:
        raise bad_request(f"pod {name} is not running, so it has no port to forward")
    protocol = chosen_protocol(request, (PROTOCOL,), "port-forward")
    socket = web.WebSocketResponse(protocols=(protocol,), max_msg_size=spdy.LARGEST_FRAME + 1024, compress=False)
    await socket.prepare(request)
    forwarding = Forwarding(socket, address, _ports(pod))
    try:
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY and not await forwarding.receive(message.data):
                break
    except (spdy.BadFrame, ConnectionError):
        pass  # closed below
    finally:
        await forwarding.close()
    with contextlib.suppress(ConnectionError):
        await socket.close()
    return socket


def _ports(pod: Object) -> str:
    containers = pod.get("spec", {}).get("containers", ())
    ports = [str(port["containerPort"]) for each in containers for port in each.get("ports", ())]
    return f"its containers declare {', '.join(ports)}" if ports else "its containers declare none"


class Forwarding:
    """All connections of one client."""

    def __init__(self, socket: web.WebSocketResponse, address: str, ports: str) -> None:
        self._socket = socket
        self._address = address
        self._ports = ports
        self._peer = spdy.Peer()
        self._half_open: dict[str, spdy.Opened] = {}
        """The first stream of a request, until the second one comes."""
        self._connections: dict[int, Connection] = {}
        """By the number of the stream with the data."""

    async def receive(self, data: bytes) -> bool:
        """False when the client says goodbye."""
        for frame in self._peer.receive(data):
            match frame:
                case spdy.Opened():
                    await self._open(frame)
                case spdy.Data() if frame.stream in self._connections:
                    await self._connections[frame.stream].write(frame.data, is_last=frame.is_last)
                case spdy.Reset() if frame.stream in self._connections:
                    self._connections[frame.stream].cancel()
                case spdy.Ping():
                    await self._socket.send_bytes(spdy.pong(frame.number))
                case spdy.Goodbye():
                    return False
        return True

    async def _open(self, opened: spdy.Opened) -> None:
        request, port = opened.headers.get("requestid", ""), opened.headers.get("port", "")
        is_port = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= 65535
        if not is_port or len(self._half_open) + len(self._connections) >= CONNECTIONS:
            await self._socket.send_bytes(spdy.reset(opened.stream, spdy.REFUSED))
            return
        await self._socket.send_bytes(self._peer.accepted(opened.stream))
        first = self._half_open.pop(request, None)
        if first is None:
            self._half_open[request] = opened
            return
        of_type = {each.headers.get("streamtype", ""): each.stream for each in (first, opened)}
        if of_type.keys() == {"error", "data"}:
            connection = Connection(self._socket, of_type["data"], of_type["error"])
            self._connections[of_type["data"]] = connection
            connection.start(self._address, int(port), self._ports, lambda: self._connections.pop(of_type["data"]))

    async def close(self) -> None:
        connections = list(self._connections.values())
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*(each.closed() for each in connections))


class Connection:
    def __init__(self, socket: web.WebSocketResponse, data: int, error: int) -> None:
        self._socket = socket
        self._data, self._error = data, error
        self._writer: asyncio.Future[asyncio.StreamWriter | None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None]

    def start(self, address: str, port: int, ports: str, on_end: Any) -> None:
        self._task = asyncio.create_task(self._run(address, port, ports))
        self._task.add_done_callback(lambda _: on_end())

    async def write(self, data: bytes, *, is_last: bool) -> None:
        """What comes after the end of the pod's side is dropped."""
        writer = await self._writer
        if writer is None:
            return
        with contextlib.suppress(OSError):
            writer.write(data)
            await writer.drain()
            if is_last and writer.can_write_eof():
                writer.write_eof()

    def cancel(self) -> None:
        self._task.cancel()

    async def closed(self) -> None:
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, address: str, port: int, ports: str) -> None:
        why, writer = b"", None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(address, port)
            self._writer.set_result(writer)
            while data := await reader.read(CHUNK):
                await self._socket.send_bytes(spdy.data_frame(self._data, data))
        except OSError as error:  # a timeout is one, too
            reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else "no answer"
            why = f"cannot reach {address}:{port}, the address of the pod: {reason}; {ports}".encode()
        finally:
            if not self._writer.done():
                self._writer.set_result(None)
            if writer is not None:
                writer.close()
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(spdy.data_frame(self._error, why, is_last=True))
            await self._socket.send_bytes(spdy.data_frame(self._data, b"", is_last=True))
