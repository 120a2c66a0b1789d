"""SPDY frames: read whatever way they are cut, and refused when they are wrong or too large."""

import struct
import zlib
from collections.abc import Mapping

import pytest

from trainmaster.local.apiserver.kubectl import spdy

HEADERS = {"streamType": "data", "port": "80", "requestID": "0"}


class Client:
    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=spdy.DICTIONARY)

    def open(self, stream: int, headers: Mapping[str, str] = HEADERS, *, flags: int = 0) -> bytes:
        parts = [part.encode() for pair in headers.items() for part in pair]
        plain = struct.pack(">I", len(headers)) + b"".join(struct.pack(">I", len(part)) + part for part in parts)
        return control(1, struct.pack(">IIH", stream, 0, 0) + self.packed(plain), flags=flags)

    def packed(self, plain: bytes) -> bytes:
        return self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def control(kind: int, body: bytes, *, version: int = 3, flags: int = 0) -> bytes:
    return struct.pack(">HHI", 0x8000 | version, kind, flags << 24 | len(body)) + body


def test_the_dictionary_is_that_of_the_protocol() -> None:
    assert (len(spdy.DICTIONARY), zlib.adler32(spdy.DICTIONARY)) == (1423, 0xE3C6A7C2)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_are_read_however_they_are_cut(size: int) -> None:
    client, peer = Client(), spdy.Peer()
    sent = b"".join(
        (
            client.open(1),
            client.open(3, flags=1),
            spdy.data_frame(1, b"hello"),
            control(4, b"settings"),
            control(6, struct.pack(">I", 9)),
            spdy.data_frame(1, b"", is_last=True),
            spdy.reset(3, spdy.CANCELLED),
            control(7, bytes(8)),
        )
    )

    found = [frame for start in range(0, len(sent), size) for frame in peer.receive(sent[start : start + size])]

    headers = {"streamtype": "data", "port": "80", "requestid": "0"}
    assert found == [
        spdy.Opened(1, headers),
        spdy.Opened(3, headers),
        spdy.Data(3, b"", True),
        spdy.Data(1, b"hello", False),
        spdy.Ping(9),
        spdy.Data(1, b"", True),
        spdy.Reset(3),
        spdy.Goodbye(),
    ]


def test_later_headers_depend_on_those_of_an_open_stream() -> None:
    client, peer = Client(), spdy.Peer()
    sent = client.open(1)
    sent += control(8, struct.pack(">I", 1) + client.packed(struct.pack(">I", 0)))

    found = list(peer.receive(sent + client.open(3)))

    assert [type(frame) for frame in found] == [spdy.Opened, spdy.Opened]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(control(1, b"short"), id="too short"),
        pytest.param(control(1, bytes(10) + b"no zlib"), id="not compressed"),
        pytest.param(control(6, bytes(4), version=2), id="another version"),
        pytest.param(struct.pack(">II", 1, spdy.LARGEST_FRAME + 1), id="too large"),
        pytest.param(control(1, bytes(10) + Client().packed(bytes(10**7))), id="a bomb"),
        pytest.param(control(1, bytes(10) + Client().packed(struct.pack(">II", 1, 99) + b"x")), id="ends early"),
        pytest.param(control(1, bytes(10) + Client().packed(b"\x00")), id="no count"),
        pytest.param(
            control(1, bytes(10) + Client().packed(struct.pack(">II", 1, 1) + b"\xff" + bytes(4))), id="no text"
        ),
    ],
)
def test_a_wrong_frame_ends_the_connection(sent: bytes) -> None:
    with pytest.raises(spdy.BadFrame):
        list(spdy.Peer().receive(sent))
