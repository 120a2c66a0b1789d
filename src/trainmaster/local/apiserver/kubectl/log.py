"""pods/log: forwards the request to the pod's node, which has the logs, and streams the answer."""

import datetime
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web

from trainmaster.core.ids import POD
from trainmaster.local.apiserver.http.status import bad_request, invalid
from trainmaster.local.apiserver.kubectl.pod_node import (
    CONNECT_SECONDS,
    container_of,
    node_refusal,
    node_url,
    unreachable,
)
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause

Object = dict[str, Any]

_FLAGS = ("follow", "previous", "timestamps")
_NUMBERS = ("tailLines", "sinceSeconds", "limitBytes")
_TRUE = ("true", "1", "")


async def pod_log(
    request: web.Request, pod: Object, node: Object | None, session: aiohttp.ClientSession, node_token: str
) -> web.StreamResponse:
    """Answers a request for the log of one container; raises Refusal with kube-apiserver's messages."""
    options = _options(pod, request.query)
    container = container_of(pod, request.query.get("container", ""))
    _check_started(pod, container, is_previous="previous" in options)
    url = node_url(pod, node, "containerLogs", container)
    headers = {"Authorization": f"Bearer {node_token}"} if node_token else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    try:
        async with session.get(url, params=options, headers=headers, timeout=timeout) as answer:
            if answer.status != 200:
                raise node_refusal(answer.status, await answer.text())
            return await _proxy(request, answer)
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        raise unreachable(url, error) from error


async def _proxy(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except aiohttp.ClientError:
        # The node closed the connection: the client keeps what it has received and sees the end.
        return response
    await response.write_eof()
    return response


# -- request ---------------------------------------------------------------------------------------------------


def _options(pod: Object, query: Mapping[str, str]) -> dict[str, str]:
    """The validated options for the node."""
    options = {flag: "true" for flag in _FLAGS if query.get(flag, "false").lower() in _TRUE}
    causes: list[Cause] = []
    for word in _NUMBERS:
        if query.get(word):
            causes += _number_errors(word, query[word])
            options[word] = query[word]
    if query.get("sinceTime"):
        options["sinceTime"] = _moment(query["sinceTime"])
    if "sinceTime" in options and "sinceSeconds" in options:
        causes.append(cause.forbidden("sinceTime", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if causes:
        raise invalid(POD, pod["metadata"]["name"], causes, kind="PodLogOptions")
    return options


def _number_errors(word: str, text: str) -> list[Cause]:
    least = 0 if word == "tailLines" else 1
    try:
        number = int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    rule = "must be greater than or equal to 0" if least == 0 else "must be greater than 0"
    return [cause.invalid(word, number, rule)] if number < least else []


def _moment(text: str) -> str:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        raise bad_request(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": it is not a time') from None
    return text


def _check_started(pod: Object, container: str, *, is_previous: bool) -> None:
    """A container that never ran has no log."""
    statuses = (
        *pod.get("status", {}).get("containerStatuses", ()),
        *pod.get("status", {}).get("initContainerStatuses", ()),
    )
    status = next((each for each in statuses if each.get("name") == container), None)
    if status is None:
        return
    name = pod["metadata"]["name"]
    last = (status.get("lastState") or {}).get("terminated")
    if is_previous:
        if not last:
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        return
    waiting = (status.get("state") or {}).get("waiting")
    if waiting and not last:
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        prefix = f"container {cause.quoted(container)} in pod {cause.quoted(name)} is waiting to start"
        raise bad_request(f"{prefix}: {message}" if message else f"{prefix}: {reason or 'no reason given'}")
