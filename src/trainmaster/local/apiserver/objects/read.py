"""get and list."""

import base64
import binascii
from typing import Any, NamedTuple

import msgspec

from trainmaster.local.apiserver.http.option import ListOptions, version_number
from trainmaster.local.apiserver.http.status import Refusal, bad_request, expired, not_found, version_too_large
from trainmaster.local.apiserver.objects.field_error import quoted
from trainmaster.local.apiserver.objects.selector import Selection, selection
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.store.store import Stored, TooOld

_STALE_CURSOR = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_STALE_VERSION = "The resourceVersion for the provided list is too old."


class Cursor(msgspec.Struct):
    """Where the next page begins. ``rv`` -1 means: as things are now."""

    v: str
    rv: int
    start: str

    def token(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


class Page(NamedTuple):
    items: list[Stored]
    metadata: dict[str, Any]


def get(state: State, target: Target, version: str = "") -> Stored:
    wanted = version_number(version, "invalid resource version: ")
    if wanted > state.store.version:
        raise version_too_large(wanted, state.store.version)
    stored = state.store.get(target.place)
    if stored is None:
        raise not_found(target.served.resource, target.name)
    return stored


def list_page(state: State, target: Target, options: ListOptions) -> Page:
    """One page; without a limit, everything."""
    select = selection(target.served, options.labels, options.fields)
    start, version = "", 0
    if options.cursor:
        cursor = _cursor_of(options.cursor)
        if options.version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        start, version = cursor.start, cursor.rv
    objects, version = _objects_at(state, target, options, start, version)
    matching = [each for each in objects if each.place.path >= start and select.matches(each)]
    return _page(target, matching, version, options, select)


def _page(target: Target, matching: list[Stored], version: int, options: ListOptions, select: Selection) -> Page:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    # A read of "any version" is answered from Kubernetes' cache, which does not page.
    limit = options.limit if options.version != "0" or options.cursor else 0
    if 0 < limit < len(matching):
        metadata["continue"] = Cursor("meta.k8s.io/v1", version, matching[limit - 1].place.path + "\0").token()
        if select.is_everything:
            metadata["remainingItemCount"] = len(matching) - limit
        matching = matching[:limit]
    return Page(matching, metadata)


def _objects_at(
    state: State, target: Target, options: ListOptions, start: str, version: int
) -> tuple[list[Stored], int]:
    store, resource = state.store, str(target.served.resource)
    if options.cursor:
        if version < 0:
            return store.select(resource, target.namespace), store.version
        if version > store.version:
            raise version_too_large(version, store.version)
        try:
            return store.select_at(resource, target.namespace, version), version
        except TooOld:
            again = Cursor("meta.k8s.io/v1", -1, start).token()
            raise expired(_STALE_CURSOR, {"continue": again}) from None
    wanted = version_number(options.version, "invalid resource version: ")
    if wanted > store.version:
        raise version_too_large(wanted, store.version)
    if options.match == "Exact" or (wanted and options.limit > 0 and not options.match):
        try:
            return store.select_at(resource, target.namespace, wanted), wanted
        except TooOld:
            raise expired(_STALE_VERSION) from None
    return store.select(resource, target.namespace), store.version


def _cursor_of(token: str) -> Cursor:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=Cursor)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise _bad_cursor(str(error)) from None
    if cursor.v != "meta.k8s.io/v1":
        raise _bad_cursor(f"server does not recognize this encoded version {quoted(cursor.v)}")
    if cursor.rv == 0 or not cursor.start:
        raise _bad_cursor("incorrect encoded start or resourceVersion")
    return cursor


def _bad_cursor(why: str) -> Refusal:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")
