"""Query parameters. As in Kubernetes, numbers are parsed strictly and nearly every other word is true."""

from collections.abc import Mapping

import msgspec

from trainmaster.local.apiserver.http.status import bad_request, invalid_options
from trainmaster.local.apiserver.objects.field_error import Cause, forbidden, quoted, unsupported_value

_NOT_OLDER = "NotOlderThan"
_EXACT = "Exact"
_LARGEST = 2**63 - 1


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    labels: str = ""
    fields: str = ""
    limit: int = 0
    cursor: str = ""
    version: str = ""
    match: str = ""
    watch: bool = False
    timeout: int = 0
    bookmarks: bool = False
    initial_events: bool | None = None

    @property
    def version_number(self) -> int:
        return version_number(self.version)


def list_options(query: Mapping[str, str]) -> ListOptions:
    """Raises Refusal: 400 for parameters that cannot be parsed, 422 for invalid combinations."""
    options = ListOptions(
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        limit=integer(query, "limit"),
        cursor=query.get("continue", ""),
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        watch=boolean(query, "watch") or False,
        timeout=integer(query, "timeoutSeconds"),
        bookmarks=boolean(query, "allowWatchBookmarks") or False,
        initial_events=boolean(query, "sendInitialEvents"),
    )
    causes = _watch_causes(options) if options.watch else _list_causes(options)
    if causes:
        raise invalid_options("ListOptions", causes)
    return options


def _list_causes(options: ListOptions) -> list[Cause]:
    causes = []
    if options.match:
        field = "resourceVersionMatch"
        if not options.version:
            causes.append(forbidden(field, f"{field} is forbidden unless resourceVersion is provided"))
        if options.cursor:
            causes.append(forbidden(field, f"{field} is forbidden when continue is provided"))
        if options.match not in (_EXACT, _NOT_OLDER):
            causes.append(unsupported_value(field, options.match, (_EXACT, _NOT_OLDER, "")))
        if options.match == _EXACT and options.version == "0":
            causes.append(forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if options.initial_events is not None:
        causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_causes(options: ListOptions) -> list[Cause]:
    causes = []
    field = "resourceVersionMatch"
    if options.initial_events is not None and options.match != _NOT_OLDER:
        causes.append(forbidden(field, f"sendInitialEvents requires setting {field} to {_NOT_OLDER}"))
    if options.match:
        if options.initial_events is None:
            causes.append(forbidden(field, f"{field} is forbidden for watch unless sendInitialEvents is provided"))
        if options.match != _NOT_OLDER:
            causes.append(unsupported_value(field, options.match, (_NOT_OLDER,)))
        if options.cursor:
            causes.append(forbidden(field, f"{field} is forbidden when continue is provided"))
    return causes


def boolean(query: Mapping[str, str], name: str) -> bool | None:
    if name not in query:
        return None
    return query[name].lower() not in ("false", "0")


def integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdecimal()):
        raise bad_request(f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax")
    if len(digits) > 19 or abs(int(text)) > _LARGEST:
        raise bad_request(f"strconv.ParseInt: parsing {quoted(text)}: value out of range")
    return int(text)


def version_number(text: str, prefix: str = "") -> int:
    """A resourceVersion as a number; 0 if it is empty."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()):
        why = f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax"
        raise bad_request(f"{prefix}resourceVersion: Invalid value: {quoted(text)}: {why}")
    if len(text) > 20 or int(text) > 2**64 - 1:
        why = f"strconv.ParseUint: parsing {quoted(text)}: value out of range"
        raise bad_request(f"{prefix}resourceVersion: Invalid value: {quoted(text)}: {why}")
    return int(text)
