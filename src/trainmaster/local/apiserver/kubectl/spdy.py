"""The part of SPDY/3.1 that ``kubectl port-forward`` uses inside of a WebSocket: bytes in, frames out, no I/O.

There is no flow control, because the clients have none.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_WORDS = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
authorization cache-control connection content-base content-encoding content-language content-length content-location
content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match
if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range
referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get
status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin
"""
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug "
    "Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _with_length(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


DICTIONARY = b"".join(_with_length(word.replace("_", " ").encode()) for word in _WORDS.split()) + _REST.encode()
"""With which headers are compressed; fixed by the protocol."""

LARGEST_FRAME = 1024 * 1024
LARGEST_HEADERS = 64 * 1024
_HEAD = 8
_VERSION = 0x8003
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN = 1
REFUSED, CANCELLED = 3, 5
"""Why a stream is reset."""


class BadFrame(Exception):
    """The peer does not speak the protocol; the connection ends."""


class Opened(NamedTuple):
    stream: int
    headers: Mapping[str, str]
    """Names are in lower case."""


class Data(NamedTuple):
    stream: int
    data: bytes
    is_last: bool


class Reset(NamedTuple):
    stream: int


class Ping(NamedTuple):
    number: int


class Goodbye(NamedTuple):
    pass


Frame = Opened | Data | Reset | Ping | Goodbye


class Peer:
    """One end of a connection: reads the frames of the other end, and writes those of this one."""

    def __init__(self) -> None:
        self._rest = b""
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def receive(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; raises BadFrame."""
        self._rest += data
        while len(self._rest) >= _HEAD:
            first, second = struct.unpack_from(">II", self._rest)
            flags, size = second >> 24, second & 0xFFFFFF
            if size > LARGEST_FRAME:
                raise BadFrame(f"a frame of {size} bytes is too large")
            if len(self._rest) < _HEAD + size:
                return
            body, self._rest = self._rest[_HEAD : _HEAD + size], self._rest[_HEAD + size :]
            if not first >> 31:
                yield Data(first, body, bool(flags & _FIN))
            elif (frame := self._control(first >> 16, first & 0xFFFF, body)) is not None:
                yield frame
                if isinstance(frame, Opened) and flags & _FIN:
                    yield Data(frame.stream, b"", True)

    def _control(self, version: int, kind: int, body: bytes) -> Frame | None:
        if version != _VERSION:
            raise BadFrame(f"version {version & 0x7FFF} of SPDY is not known")
        if kind not in _SIZES:
            return None
        if len(body) < _SIZES[kind]:
            raise BadFrame("a frame is too short")
        number = struct.unpack_from(">I", body)[0] & 0x7FFFFFFF
        match kind:
            case 1:
                return Opened(number, self._headers(body[10:]))
            case 3:
                return Reset(number)
            case 6:
                return Ping(struct.unpack(">I", body[:4])[0])
            case 8:
                self._headers(body[4:])  # the later ones are compressed by what these contain
                return None
        return Goodbye()

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            raw = self._inflate.decompress(block, LARGEST_HEADERS)
        except zlib.error as error:
            raise BadFrame(f"headers cannot be read: {error}") from error
        if self._inflate.unconsumed_tail:
            raise BadFrame(f"headers have more than {LARGEST_HEADERS} bytes")
        try:
            (count,), place, found = struct.unpack_from(">I", raw), 4, {}
            for _ in range(count):
                name, place = _text(raw, place)
                found[name.lower()], place = _text(raw, place)
        except (struct.error, UnicodeDecodeError) as error:
            raise BadFrame(f"headers cannot be read: {error}") from error
        return found

    def accepted(self, stream: int) -> bytes:
        """The answer to ``Opened``."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _frame(_SYN_REPLY, struct.pack(">I", stream) + block)


_SIZES = {_SYN_STREAM: 10, _RST_STREAM: 8, _PING: 4, _GOAWAY: 8, _HEADERS: 4}
"""Of the control frames that mean something here, at least; others are skipped."""


def _text(raw: bytes, place: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">I", raw, place)
    end = place + 4 + size
    if end > len(raw):
        raise struct.error("they end too early")
    return raw[place + 4 : end].decode(), end


def _frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">HHI", _VERSION, kind, len(body)) + body


def data_frame(stream: int, data: bytes, *, is_last: bool = False) -> bytes:
    return struct.pack(">II", stream, (_FIN if is_last else 0) << 24 | len(data)) + data


def reset(stream: int, why: int) -> bytes:
    return _frame(_RST_STREAM, struct.pack(">II", stream, why))


def pong(number: int) -> bytes:
    return _frame(_PING, struct.pack(">I", number))
