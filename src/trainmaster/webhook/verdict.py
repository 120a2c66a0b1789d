"""Validates a job before it is stored, with the same errors that the operator would report later.

An update is judged by what it makes worse. What was stored before some rule existed can still be labelled, finished
and deleted; the operator reports its errors in a condition. Fields that must not change are compared in every job,
also in one that has ended.
"""

from typing import Any

import msgspec

from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import Key
from trainmaster.core.job_size import size_error
from trainmaster.core.nesting import TOO_DEEP, prune
from trainmaster.core.view import JobView
from trainmaster.kinds.base import Kind
from trainmaster.webhook import review
from trainmaster.webhook.review import Operation, Request, Unreadable
from trainmaster.webhook.warning import warnings_of

_REVIEWED = frozenset({"CREATE", "UPDATE"})


class Verdict(msgspec.Struct, frozen=True):
    """Refused when there are errors."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def mutation(kind: Kind[Any], request: Request) -> list[Operation]:
    """The defaults of the ancestor's webhook, and nothing else. It runs before schema validation."""
    try:
        return _mutation(kind, request)
    except (Unreadable, RecursionError):
        return []  # the verdict will refuse it


def verdict(kind: Kind[Any], request: Request) -> Verdict:
    try:
        return _verdict(kind, request)
    except Unreadable as error:
        return _verdict_of_unreadable(kind, request, str(error))
    except RecursionError:
        return _verdict_of_unreadable(kind, request, TOO_DEEP)


def _mutation(kind: Kind[Any], request: Request) -> list[Operation]:
    new, old = _objects(request)
    spec = (new or {}).get("spec")
    if new is None or not isinstance(spec, dict) or _is_left_alone(kind, request):
        return []
    if old is not None and old.get("spec") == spec:
        return []  # a label must not change the spec of a job that was stored before
    return [
        {"op": "add", "path": f"/spec/{field}", "value": value}
        for field, value in kind.custom.defaults.items()
        if spec.get(field) in (None, "")
    ]


def _verdict(kind: Kind[Any], request: Request) -> Verdict:
    new, old = _objects(request)
    if new is None:
        return Verdict()
    changes = kind.refused_changes(_view(request.old_object), _view(request.object)) if old is not None else []
    if _is_left_alone(kind, request):
        return Verdict(tuple(changes))
    known = set(_errors(kind, request.old_object)) if old is not None else set()
    errors = changes + [error for error in _errors(kind, request.object) if error not in known]
    is_news = old is None or old.get("spec") != new.get("spec")
    warnings = warnings_of(new, kind.custom, _kind_warnings(kind, request.object)) if is_news else []
    return Verdict(tuple(errors), tuple(warnings))


def _verdict_of_unreadable(kind: Kind[Any], request: Request, error: str) -> Verdict:
    """Refuses what cannot be read, and does not lock in what is stored already."""
    is_known = _reading_error(bytes(request.old_object)) in (error, TOO_DEEP)
    return Verdict() if is_known or _is_left_alone(kind, request) else Verdict((error,))


def _objects(request: Request) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The job and what it was before; no job when the request changes nothing that is ours to judge."""
    if request.operation not in _REVIEWED or request.sub_resource:
        return None, None
    # Before it is parsed: as Python objects, 1.5 MB of JSON may take 100 MB.
    if error := size_error(bytes(request.object)):
        raise Unreadable(error)
    new = review.parsed(request.object)
    if new is None:
        raise review.BadReview(f"the request is a {request.operation} without an object")
    # Nothing is known of a stored object that cannot be read.
    return new, {} if _reading_error(bytes(request.old_object)) else review.parsed(request.old_object)


def _reading_error(raw: bytes) -> str:
    """Why a job is not read; empty if it is."""
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
        return size_error(raw)
    except RecursionError:
        return TOO_DEEP
    except ValueError as error:
        return str(error)


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct, frozen=True):
    phase: str | None = None


class _Progress(msgspec.Struct, frozen=True):
    """The part of a job by which it is left alone."""

    metadata: _Meta = _Meta()
    status: _Status = _Status()


_PROGRESS = msgspec.json.Decoder(_Progress)


def _is_left_alone(kind: Kind[Any], request: Request) -> bool:
    """True when a stored job is being deleted or has ended: it never runs again."""
    old, new = bytes(request.old_object), bytes(request.object)
    return old != b"null" and (
        bool(_progress(new).metadata.deletion_timestamp) or _progress(old).status.phase in kind.ended
    )


def _progress(raw: bytes) -> _Progress:
    try:
        return _PROGRESS.decode(raw)
    except RecursionError:
        return _PROGRESS.decode(prune(raw))
    except ValueError:
        return _Progress()  # another type than ours


def _errors(kind: Kind[Any], raw: msgspec.Raw) -> tuple[str, ...]:
    try:
        kind.decode(_view(raw))
    except BadSpec as bad:
        return bad.errors
    return ()


def _kind_warnings(kind: Kind[Any], raw: msgspec.Raw) -> list[str]:
    try:
        return kind.warnings(kind.decode(_view(raw)))
    except BadSpec:
        return []


def _view(raw: msgspec.Raw) -> JobView:
    """The kind reads the body alone; the rest of the view is for the store."""
    return JobView(Key("", ""), "", 0, False, bytes(raw))
