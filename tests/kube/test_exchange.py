"""trainmaster.kube.exchange: one request and its whole answer, as bytes on a connection."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.kube.build import a_config
from tests.kube.conftest import Connect, Run
from tests.kube.serve import RawServer
from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import POD, Key

KEY = Key("ml", "a")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


def answering(*answers: bytes, heads: list[str] | None = None) -> Talk:
    """Each request gets the next of these answers; what was asked is noted."""
    given = iter(answers)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if heads is not None:
                heads.append(head)
            length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
            await reader.readexactly(int(length or 0))
            writer.write(next(given))
            await writer.drain()

    return talk


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        pytest.param(OK, 1, id="of a length"),
        pytest.param(CHUNKS, 1, id="in chunks"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, 1, id="after a hint"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + OK, 1, id="after two of them"),
        pytest.param(OK.replace(b"200 OK", b"200"), 1, id="without a reason"),
        pytest.param(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 2, id="that says close"),
        pytest.param(OK.replace(b"HTTP/1.1", b"HTTP/1.0"), 2, id="of HTTP/1.0"),
    ],
)
async def test_an_answer_is_read_whole_and_its_connection_used_again_unless_the_server_closes_it(
    answer: bytes, connections: int, run: Run[Any], connect: Connect
) -> None:
    server = await run(RawServer(answering(answer, answer)))
    cluster = await connect(a_config(server.url))

    assert [await cluster.get(POD, KEY), await cluster.get(POD, KEY)] == [b"{}", b"{}"]
    assert server.connections == connections


async def test_a_request_has_all_headers_that_an_api_server_needs(run: Run[Any], connect: Connect) -> None:
    heads: list[str] = []
    server = await run(RawServer(answering(OK, OK, heads=heads)))
    cluster = await connect(a_config(server.url, token="secret"))

    await cluster.create(POD, "ml", b'{"metadata":{"name":"a"}}')
    await cluster.get(POD, KEY)

    posted, asked = (head.split("\r\n") for head in heads)
    host = server.url.removeprefix("http://")
    assert posted[0] == "POST /api/v1/namespaces/ml/pods?fieldManager=trainmaster HTTP/1.1"
    assert {
        f"Host: {host}",
        "Authorization: Bearer secret",
        "Content-Type: application/json",
        "Content-Length: 25",
        "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    } <= set(posted)
    assert asked[0] == "GET /api/v1/namespaces/ml/pods/a HTTP/1.1"
    assert "Accept: application/json" in asked
    assert not [line for line in asked if line.startswith("Content-")]


async def test_a_header_is_never_two_lines(run: Run[Any], connect: Connect) -> None:
    server = await run(RawServer(answering(OK)))
    cluster = await connect(a_config(server.url, impersonate=(("Impersonate-User", "me\r\nX-Admin: yes"),)))

    with pytest.raises(BadConfig, match="the header Impersonate-User would contain a line break"):
        await cluster.get(POD, KEY)

    assert server.connections == 0
