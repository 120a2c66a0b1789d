"""Reads JSON that is nested too deeply for a decoder.

msgspec recurses for each level, also in values that it skips, and raises ``RecursionError`` at a limit that depends
on the version of Python (about 1 000 levels in 3.11). The API server stores objects of 10 000 levels. The functions
here do not recurse: they only scan strings and brackets. They are a hundred times slower than msgspec, so call them
only after msgspec has failed, and for a watch line only up to ``SCANNED`` bytes: ``without_spec`` is for larger ones.
Raising Python's recursion limit does not help: since 3.12 C code has another limit.
"""

import re
from collections.abc import Iterator

import msgspec

LEVELS = 64
"""Levels that ``prune`` keeps. The fields of a pod that Kubernetes knows end before level 30, also inside of a job."""

TOO_DEEP = "object: it is nested too deeply to be read; remove the nested values, which no pod can have"

SCANNED = 24 * 1024
"""Bytes that take about 10 ms to scan at worst, when all of them are brackets."""

_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:"(?:[^"\\]++|\\.)*+"[^"\[\]{}]*+)*+(?:([\[{])|([\]}])|(")|\Z)', re.DOTALL)
"""The next bracket, and all strings and numbers before it."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|([\[{])|([\]}])|(")', re.DOTALL)
_OPEN, _CLOSE, _UNENDED = 1, 2, 3
_COLON = re.compile(rb"\s*:")


def _tokens(raw: bytes) -> Iterator[re.Match[bytes]]:
    """Strings, which have no ``lastindex``, and brackets."""
    for token in _TOKEN.finditer(raw):
        if token.lastindex == _UNENDED:
            raise _truncated()
        yield token


def _brackets(raw: bytes) -> Iterator[re.Match[bytes]]:
    for token in _BRACKET.finditer(raw):
        if token.lastindex == _UNENDED:
            raise _truncated()
        yield token


_METADATA = re.compile(rb'\{"apiVersion":"[^"\\]*","kind":"[^"\\]*","metadata":(?=\{)')
_SPEC, _MANAGED, _NAME, _STATUS = b'},"spec":', b'"managedFields":[', b'],"name":', b'},"status":{'


def without_spec(raw: bytes) -> bytes:
    """The same object with an empty spec and without ``managedFields``. Nothing is scanned that its author nested.

    It uses how API servers write custom resources: the fields in the order of their names, without spaces. The metadata
    comes before the spec and has no field ``spec``; its strings have escaped quotes. ``managedFields`` have no arrays
    inside. The status is the end of the object. Raises ``msgspec.DecodeError`` for an object that is written otherwise.
    """
    head, raw = _METADATA.match(raw), raw.rstrip()
    end = raw.find(_SPEC, head.end()) + 1 if head else 0
    if head is None or not end:
        raise msgspec.DecodeError(TOO_DEEP)
    metadata = raw[head.end() : end]
    managed = metadata.find(_MANAGED)
    if managed >= 0:
        metadata = metadata[:managed] + metadata[metadata.index(_NAME, managed) + 2 :]
    last = raw.rfind(_STATUS, end)
    status = raw[last + len(_STATUS) - 1 : -1]
    has_status = last >= 0 and _is_object(status)
    return b'%s%s,"spec":{},"status":%s}' % (head.group(), metadata, status if has_status else b"{}")


def _is_object(raw: bytes) -> bool:
    """False for a value inside of the spec, after which brackets are left."""
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return False
    return True


def prune(raw: bytes, levels: int = LEVELS) -> bytes:
    """The same JSON with ``null`` instead of every value that is nested deeper than ``levels``."""
    pieces: list[bytes] = []
    depth = kept = 0
    for token in _brackets(raw):
        if token.lastindex == _OPEN:
            depth += 1
            if depth == levels + 1:
                pieces += (raw[kept : token.end() - 1], b"null")
        elif token.lastindex == _CLOSE:
            depth -= 1
            if depth == levels:
                kept = token.end()
    if depth != 0:
        raise _truncated()
    return b"".join([*pieces, raw[kept:]])


def members(raw: bytes) -> dict[bytes, bytes]:
    """The values of a JSON object, undecoded, by name. Raises ``msgspec.DecodeError`` for anything else."""
    if not raw.lstrip().startswith(b"{"):
        raise msgspec.DecodeError("JSON is malformed: expected an object")
    values: dict[bytes, bytes] = {}
    name: bytes | None = None
    depth = start = 0
    for token in _tokens(raw):
        if token.lastindex is None:  # a string
            if depth == 1 and (colon := _COLON.match(raw, token.end())):
                if name is not None:
                    values[name] = raw[start : token.start()].strip().removesuffix(b",").strip()
                name, start = token.group()[1:-1], colon.end()
            continue
        depth += 1 if token.lastindex == _OPEN else -1
        if depth == 0:
            if name is not None:
                values[name] = raw[start : token.start()].strip()
            _check_end(raw, token.end())
            return values
    raise _truncated()


def elements(raw: bytes) -> list[bytes]:
    """The objects and arrays in a JSON array, undecoded. Raises ``msgspec.DecodeError`` for anything else."""
    if not raw.lstrip().startswith(b"["):
        raise msgspec.DecodeError("JSON is malformed: expected an array")
    values: list[bytes] = []
    depth = start = 0
    for token in _brackets(raw):
        if token.lastindex == _OPEN:
            depth += 1
            if depth == 2:
                start = token.end() - 1
        elif token.lastindex == _CLOSE:
            depth -= 1
            if depth == 1:
                values.append(raw[start : token.end()])
            elif depth == 0:
                _check_end(raw, token.end())
                return values
    raise _truncated()


def _check_end(raw: bytes, end: int) -> None:
    if raw[end:].strip():
        raise msgspec.DecodeError(f"JSON is malformed: trailing characters (byte {end})")


def _truncated() -> msgspec.DecodeError:
    return msgspec.DecodeError("Input data was truncated")
