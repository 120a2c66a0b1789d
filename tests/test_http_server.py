"""Real loopback sockets: what a server accepts before it has read a request."""

import asyncio
import errno
import gc
import socket
import ssl
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web

from tests.kube.certificate import Authority
from trainmaster.http_server import serve_http

LIMIT = 32
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    async def ask(self) -> bytes:
        """The first line of the answer; nothing if the connection ended before."""
        with suppress(ConnectionError):
            self._writer.write(REQUEST)
            return (await self.reader.readline()).strip()
        return b""

    async def ended(self) -> None:
        """Returns when the server has closed the connection."""
        with suppress(ConnectionError):
            await self.reader.read()

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def connect() -> AsyncIterator["Connect"]:
    async with AsyncExitStack() as stack:
        yield Connect(stack)


class Connect:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(self, port: int, said: bytes = b"", *, address: str = "127.0.0.1") -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        self._stack.callback(writer.close)
        writer.write(said)
        return Client(reader, writer)


@asynccontextmanager
async def serving(
    *,
    limit: int = LIMIT,
    per_address: int | None = None,
    keep_alive: float = 60.0,
    tls: ssl.SSLContext | None = None,
    hold: asyncio.Event | None = None,
) -> AsyncIterator[int]:
    async def answer(request: web.Request) -> web.Response:
        if hold is not None and request.path == "/held":
            await hold.wait()
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    async with serve_http(
        app, "127.0.0.1:0", connections=limit, per_address=per_address, keep_alive=keep_alive, tls=tls
    ) as port:
        yield port


async def open_after(clients: list[Client], limit: int) -> list[Client]:
    """The connections that are left when all but ``limit`` have ended."""
    waiting = {asyncio.create_task(client.ended()): client for client in clients}
    while len(waiting) > limit:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del waiting[task]
    for task in waiting:
        task.cancel()
    return list(waiting.values())


SILENT = [
    pytest.param(b"", id="silent"),
    pytest.param(b"GET / HTTP/1.1\r\nHo", id="half a request"),
    pytest.param(REQUEST, id="asked once"),
]


@pytest.mark.parametrize("said", SILENT)
async def test_no_more_connections_than_the_limit_stay_open(said: bytes, connect: Connect) -> None:
    async with serving() as port:
        clients = [await connect(port, said) for _ in range(5 * LIMIT)]

        assert len(await open_after(clients, LIMIT)) <= LIMIT


@pytest.mark.parametrize("said", SILENT)
async def test_a_client_that_asks_is_answered_while_others_hold_all_connections(said: bytes, connect: Connect) -> None:
    async with serving() as port:
        for _ in range(5 * LIMIT):
            await connect(port, said)

        assert await (await connect(port)).ask() == b"HTTP/1.1 200 OK"


async def test_an_address_has_no_more_connections_than_its_own_limit(connect: Connect) -> None:
    async with serving(limit=1000, per_address=3) as port:
        own = [await connect(port) for _ in range(3)]
        assert [await client.ask() for client in own] == [b"HTTP/1.1 200 OK"] * 3

        assert await (await connect(port)).ask() == b""
        assert await (await connect(port, address="127.0.0.2")).ask() == b"HTTP/1.1 200 OK"

        own[0].close()
        while await (again := await connect(port)).ask() == b"":
            again.close()  # until the server has noticed


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.parametrize("said", SILENT)
async def test_many_connections_from_one_address_close_none_of_another(said: bytes, connect: Connect) -> None:
    async with serving() as port:
        before = await connect(port)
        flood = [await connect(port, said, address="127.0.0.2") for _ in range(5 * LIMIT)]
        await open_after(flood, LIMIT)

        assert await before.ask() == b"HTTP/1.1 200 OK"


async def test_a_request_in_hand_is_answered_however_many_connect_after_it(connect: Connect) -> None:
    release = asyncio.Event()
    async with serving(hold=release) as port:
        busy = await connect(port, REQUEST.replace(b"GET /", b"GET /held"))
        others = [await connect(port) for _ in range(5 * LIMIT)]
        await open_after(others, LIMIT)
        release.set()

        assert (await busy.reader.readline()).strip() == b"HTTP/1.1 200 OK"


async def test_a_connection_is_refused_when_all_have_requests_in_hand(connect: Connect) -> None:
    release = asyncio.Event()
    async with serving(hold=release) as port:
        busy = [await connect(port, REQUEST.replace(b"GET /", b"GET /held")) for _ in range(LIMIT)]
        # The last one was accepted, so all were.
        await (await connect(port)).ended()
        release.set()

        assert [(await client.reader.readline()).strip() for client in busy] == [b"HTTP/1.1 200 OK"] * LIMIT


@pytest.mark.parametrize("said", SILENT)
async def test_an_idle_connection_ends_after_the_keep_alive_time(said: bytes, connect: Connect) -> None:
    async with serving(keep_alive=0.05) as port:
        await (await connect(port, said)).ended()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("ca")


async def test_clients_that_never_finish_their_handshake_do_not_take_all_connections(
    connect: Connect, authority: Authority, tmp_path: Path
) -> None:
    async with serving(tls=authority.serving(tmp_path, names=("127.0.0.1",))) as port:
        silent = [await connect(port, b"\x16\x03\x01") for _ in range(5 * LIMIT)]
        assert len(await open_after(silent, LIMIT)) <= LIMIT

        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://127.0.0.1:{port}/", ssl=ssl.create_default_context(cadata=authority.pem.decode())
            ) as response,
        ):
            assert response.status == 200


async def test_a_server_without_free_descriptors_serves_again_when_there_are_some(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.http_server.DESCRIPTOR_PAUSE", 0.0)
    loop = asyncio.get_running_loop()
    accept, failures = loop.sock_accept, [OSError(errno.EMFILE, ""), OSError(errno.ECONNABORTED, "")]

    async def scarce(listener: object) -> object:
        if failures:
            raise failures.pop()
        return await accept(listener)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "sock_accept", scarce)
    async with serving() as port:
        assert await (await connect(port)).ask() == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_client_that_does_not_end_its_side_of_tls_leaves_no_open_connection(
    authority: Authority, tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    tls = authority.serving(tmp_path, names=("127.0.0.1",))

    async def serve_one(client: socket.socket) -> None:
        async with serving(tls=tls) as port:
            await asyncio.to_thread(_ask_over_tls, client, port)

    with socket.socket() as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        errors: list[object] = []
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: errors.append(context))
            runner.run(serve_one(client))
        gc.collect()

    assert [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)] == []
    assert errors == []


def _ask_over_tls(client: socket.socket, port: int) -> None:
    """One request and its answer; what the server sends after that is never read."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(incoming, outgoing)
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    for step in (secured.do_handshake, lambda: secured.write(REQUEST), lambda: secured.read(100)):
        while True:
            try:
                step()
                client.sendall(outgoing.read())
                break
            except ssl.SSLWantReadError:
                client.sendall(outgoing.read())
                incoming.write(client.recv(65536))
