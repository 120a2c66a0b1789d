"""The same requests to the embedded API and to a real one, and what remains of the answers when they may differ."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.local.apiserver.client import Answer, Client

Seen = Sequence[Answer]
Body = Mapping[str, Any] | Sequence[Any] | bytes | None

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_RECORD = re.compile(r"(precondition|record) \(\d+\)")
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![\w-])")
_UNREADABLE = re.compile(r"Invalid value: (\".*\": |\w+ in .* a \w+: )json: ")
_AGE = re.compile(r"[0-9]+s")
_SERVERS_OWN = ("managedFields", "selfLink", "continue")


class Call(NamedTuple):
    """One request; path and body may depend on the answers before it. ``{ns}`` is the namespace of the test."""

    method: str
    path: str | Callable[[Seen], str]
    body: Body | Callable[[Seen], Body] = None
    content_type: str = "application/json"
    accept: str = ""


async def play(client: Client, namespace: str, calls: Sequence[Call]) -> list[Answer]:
    seen: list[Answer] = []
    for call in calls:
        path = call.path(seen) if callable(call.path) else call.path
        body = call.body(seen) if callable(call.body) else call.body
        path = path.replace("{ns}", namespace)
        if body is not None and not isinstance(body, bytes):
            body = json.loads(json.dumps(body).replace("{ns}", namespace))
        if call.method == "WATCH":
            seen.append(Answer(200, await client.watched(path)))
        else:
            seen.append(
                await client.request(call.method, path, body, content_type=call.content_type, accept=call.accept)
            )
    return seen


async def play_both(ours: Client, real: Client, namespace: str, calls: Sequence[Call]) -> tuple[Any, Any]:
    """What both answered, made comparable."""
    await ours.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    mine, theirs = await asyncio.gather(play(ours, namespace, calls), play(real, namespace, calls))
    return comparable(mine), comparable(theirs)


def comparable(answers: Sequence[Answer]) -> list[Any]:
    """Uids by the order in which they appeared, versions by their rank, no times, nothing that only servers say."""
    uids: dict[str, str] = {}
    versions = sorted({version for answer in answers for version in _versions(answer.body)})
    ranks = {str(version): f"version-{rank}" for rank, version in enumerate(versions)}
    return [
        {
            "code": answer.code,
            "body": _plain(answer.body, uids, ranks),
            "warnings": answer.warnings if answer.code < 300 else (),
        }
        for answer in answers
    ]


def _versions(value: Any) -> list[int]:
    if isinstance(value, list):
        return [version for each in value for version in _versions(each)]
    if not isinstance(value, dict):
        return []
    found = [version for key, each in value.items() if key != "metadata" for version in _versions(each)]
    meta = value.get("metadata")
    if isinstance(meta, dict) and "uid" in meta and str(meta.get("resourceVersion", "")).isdecimal():
        found.append(int(meta["resourceVersion"]))
    return found


def _plain(value: Any, uids: dict[str, str], ranks: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_plain(each, uids, ranks) for each in value if not _is_bookmark(each)]
    if isinstance(value, dict):
        return _plain_object(value, uids, ranks)
    if isinstance(value, str):
        text = _RECORD.sub(r"\1 (…)", value)
        text = _UID.sub(lambda match: uids.setdefault(match[0], f"uid-{len(uids)}"), text)
        # The real one shows the whole difference between two pods.
        text = text.partition("\n@@")[0]
        # And the whole object that a patch made unreadable.
        text = _UNREADABLE.sub("json: ", text)
        return _SUFFIX.sub("-SUFFIX", _TIME.sub("TIME", text))
    return value


def _plain_object(value: dict[str, Any], uids: dict[str, str], ranks: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in sorted(value):
        if key in _SERVERS_OWN:
            continue
        if key == "resourceVersion":
            # A list has the version of the whole store, to which others write too.
            found[key] = ranks.get(value[key], "…") if "uid" in value else "…"
        elif key == "cells":
            found[key] = ["AGE" if isinstance(cell, str) and _AGE.fullmatch(cell) else cell for cell in value[key]]
        elif key == "columnDefinitions" and value[key]:
            found[key] = [{word: column[word] for word in column if word != "description"} for column in value[key]]
        elif key == "causes":
            # The real one often validates twice.
            plain = [_plain(cause, uids, ranks) for cause in value[key]]
            found[key] = [dict(each) for each in dict.fromkeys(tuple(cause.items()) for cause in plain)]
        else:
            found[key] = _plain(value[key], uids, ranks)
    if value.get("continue"):
        found["continue"] = "…"
    return found


def _is_bookmark(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "BOOKMARK"
