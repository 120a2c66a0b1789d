"""Decodes answers: the fields of an object that a write needs, and errors as exceptions."""

import re
from collections.abc import Sequence

import msgspec

from trainmaster.core.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    Terminating,
    TooManyRequests,
    Unauthorized,
    UnknownField,
)
from trainmaster.runtime.cluster import Written

_UNKNOWN_BODY = 256
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)".*')
_STATUS_MESSAGE = 4096
_TERMINATING = "NamespaceTerminating"
_UNKNOWN_FIELD = "strict decoding error: unknown field "

_MEANINGS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    422: Invalid,
}


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0
    causes: tuple[_Cause, ...] | None = None


class _Status(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""
    reason: str = ""
    details: _Details | None = None


class _Named(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    generate_name: str = ""


class _Body(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


_decode_object = msgspec.json.Decoder(_Object).decode


def written(body: bytes, what: object, warnings: Sequence[str] = ()) -> Written:
    """The uid and version in the answer to a write; a Status has neither. ``warnings`` are header values."""
    try:
        metadata = _decode_object(body).metadata
    except msgspec.MsgspecError as error:
        raise ServerError(f"{what}: the answer is not a Kubernetes object; is this an API server?") from error
    version = metadata.resource_version
    number = int(version) if version.isdecimal() else 0
    return Written(metadata.uid, number, tuple(filter(None, map(_warning_text, warnings))))


def _warning_text(header: str) -> str:
    """The text of ``299 - "text"``, the form that Kubernetes uses; empty for any other warning."""
    found = _WARNING.fullmatch(header)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""


def name_in(body: bytes) -> str:
    """The name of the object in a request body, for error messages."""
    try:
        metadata = msgspec.json.decode(body, type=_Body).metadata
    except msgspec.MsgspecError:
        return ""
    return metadata.name or metadata.generate_name


def refusal(what: object, code: int, body: bytes, retry_after: str) -> ApiError:
    """The exception for an unsuccessful answer; ``retry_after`` is the header, or ""."""
    status = _status(body)
    _, is_unknown, fields = status.message.rpartition(_UNKNOWN_FIELD)
    # For a patch, the API server quotes the whole object before it names the fields.
    sentence = f"{is_unknown}{fields}" if is_unknown else status.message or _excerpt(body)
    sentence = sentence[:_STATUS_MESSAGE]
    message = f"{what}: {sentence} ({' '.join(filter(None, (str(code), status.reason)))})"
    wait = float(retry_after) if retry_after.isdecimal() else None
    if code == 429 or (code == 503 and wait is not None):
        seconds = status.details.retry_after_seconds if status.details else 0
        wait = wait if wait is not None else float(seconds or 1)
        return TooManyRequests(message, code=code, reason=status.reason, answer=sentence, retry_after=wait)
    meaning = UnknownField if is_unknown and code in (400, 422) else _meaning(code, status)
    return meaning(message, code=code, reason=status.reason, answer=sentence)


def _meaning(code: int, status: _Status) -> type[ApiError]:
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists
    causes = status.details.causes or () if status.details else ()
    if code == 403 and any(cause.reason == _TERMINATING for cause in causes):
        return Terminating
    return ServerError if code >= 500 else _MEANINGS.get(code, ApiError)


def _status(body: bytes) -> _Status:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        return _Status()
    return status if status.kind == "Status" else _Status()


def _excerpt(body: bytes) -> str:
    text = " ".join(body[: 4 * _UNKNOWN_BODY].decode("utf-8", "replace").split())
    return text[:_UNKNOWN_BODY] or "no explanation"
