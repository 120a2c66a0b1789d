"""pods/log: forwards the request to the pod's node, which has the logs, and streams the answer."""

import datetime
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from trainmaster.core.ids import POD
from trainmaster.local.apiserver.http.status import Refusal, bad_request, invalid
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause

Object = dict[str, Any]

CONNECT_SECONDS = 10.0
_FLAGS = ("follow", "previous", "timestamps")
_NUMBERS = ("tailLines", "sinceSeconds", "limitBytes")
_TRUE = ("true", "1", "")


async def pod_log(
    request: web.Request, pod: Object, node: Object | None, session: aiohttp.ClientSession, node_token: str
) -> web.StreamResponse:
    """Answers a request for the log of one container; raises Refusal with kube-apiserver's messages."""
    options = _options(pod, request.query)
    container = _container(pod, request.query.get("container", ""))
    _check_started(pod, container, is_previous="previous" in options)
    url = _url(pod, container, node)
    headers = {"Authorization": f"Bearer {node_token}"} if node_token else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    try:
        async with session.get(url, params=options, headers=headers, timeout=timeout) as answer:
            if answer.status != 200:
                raise _node_refusal(answer.status, await answer.text())
            return await _proxy(request, answer)
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        raise _unreachable(url, error) from error


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


def _container(pod: Object, wanted: str) -> str:
    """The requested container; the name may be left out if there is only one."""
    spec, name = pod.get("spec", {}), pod["metadata"]["name"]
    names = [each["name"] for each in spec.get("containers", ())]
    starts = [each["name"] for each in spec.get("initContainers", ())]
    if wanted:
        if wanted not in (*names, *starts):
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(names) == 1:
        return str(names[0])
    message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
    if starts:
        message += f" or one of the init containers: [{' '.join(starts)}]"
    raise bad_request(message)


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


def _url(pod: Object, container: str, node: Object | None) -> str:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    host = pod.get("spec", {}).get("nodeName", "")
    if not host:
        raise bad_request(f"pod {name} does not have a host assigned")
    status = (node or {}).get("status", {})
    address = next(
        (each.get("address", "") for each in status.get("addresses", ()) if each.get("type") == "InternalIP"), ""
    )
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)
    if not address or not port:
        raise _server_error(
            f"no address or port known for node {host}, so its logs cannot be read; is the node running?"
        )
    return f"https://{address}:{port}/containerLogs/{namespace}/{name}/{container}"


# -- errors ----------------------------------------------------------------------------------------------------


def _node_refusal(code: int, text: str) -> Refusal:
    """The node's message, in a Status if the node did not write one."""
    try:
        message = msgspec.json.decode(text, type=dict[str, Any])["message"]
    except (msgspec.MsgspecError, KeyError):
        message = text.strip() or "the node gave no reason"
    reason = {400: "BadRequest", 404: "NotFound"}.get(code, "InternalError")
    return Refusal(code if code in (400, 404) else 500, reason, str(message))


def _server_error(why: str) -> Refusal:
    message = f"Internal error occurred: {why}"
    return Refusal(500, "InternalError", message, {"causes": [{"message": why}]})


def _unreachable(url: str, error: BaseException) -> Refusal:
    why = str(error) or type(error).__name__
    return _server_error(f'error dialing the node: Get "{url}": {why}; is the node running?')
