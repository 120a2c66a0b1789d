"""pods/exec: joins the WebSocket of the client with one to the pod's node, which runs the command."""

import asyncio
import contextlib
from typing import Any

import aiohttp
from aiohttp import web

from trainmaster.local.apiserver.http.status import Refusal, bad_request
from trainmaster.local.apiserver.kubectl.pod_node import (
    CONNECT_SECONDS,
    container_of,
    node_refusal,
    node_url,
    unreachable,
)

Object = dict[str, Any]

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
LARGEST_MESSAGE = 1024 * 1024
_OPTIONS = ("command", "stdin", "stdout", "stderr", "tty")


async def pod_exec(
    request: web.Request, pod: Object, node: Object | None, session: aiohttp.ClientSession, node_token: str
) -> web.StreamResponse:
    """Runs a command for a client; raises Refusal with kube-apiserver's messages."""
    container = container_of(pod, request.query.get("container", ""))
    url = node_url(pod, node, "exec", container)
    _check_running(pod, container)
    protocol = chosen_protocol(request, PROTOCOLS, "exec")
    params = [(word, value) for word, value in request.query.items() if word in _OPTIONS]
    headers = {"Authorization": f"Bearer {node_token}"} if node_token else {}
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            upstream = await session.ws_connect(
                url, params=params, protocols=(protocol,), headers=headers, max_msg_size=LARGEST_MESSAGE
            )
    except aiohttp.WSServerHandshakeError as error:
        raise node_refusal(error.status, f'the node did not run the command in container "{container}"') from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise unreachable(url, error) from error
    async with upstream:
        client = web.WebSocketResponse(protocols=(protocol,), max_msg_size=LARGEST_MESSAGE, compress=False)
        await client.prepare(request)
        await _join(client, upstream)
    return client


def chosen_protocol(request: web.Request, protocols: tuple[str, ...], what: str) -> str:
    """The first protocol that the client offers; raises Refusal if it uses SPDY, as kubectl did before 1.30, or none
    that is known."""
    if not web.WebSocketResponse().can_prepare(request):
        why = "needs a client that uses WebSockets, such as kubectl 1.31 or newer"
        raise Refusal(501, "NotImplemented", f"{what} {why}: the local cluster does not speak SPDY")
    offered = [each.strip() for each in ",".join(request.headers.getall("Sec-WebSocket-Protocol", [])).split(",")]
    found = next((each for each in offered if each in protocols), "")
    if not found:
        raise bad_request(f"{what} needs one of the WebSocket protocols {', '.join(protocols)}")
    return found


def _check_running(pod: Object, container: str) -> None:
    name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase", "")
    if phase in ("Succeeded", "Failed"):
        raise bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
    statuses = (
        *pod.get("status", {}).get("containerStatuses", ()),
        *pod.get("status", {}).get("initContainerStatuses", ()),
    )
    states = [(each.get("state") or {}) for each in statuses if each.get("name") == container]
    if not any("running" in state for state in states):
        raise bad_request(
            f'container "{container}" in pod "{name}" is not running; kubectl describe pod {name} says why'
        )


async def _join(client: web.WebSocketResponse, upstream: aiohttp.ClientWebSocketResponse) -> None:
    """Copies messages both ways until one side ends."""
    tasks = [asyncio.create_task(_copy(*ends)) for ends in ((client, upstream), (upstream, client))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(ConnectionError):
            await client.close()


Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def _copy(source: Socket, target: Socket) -> None:
    async for message in source:
        if message.type is aiohttp.WSMsgType.BINARY:
            await target.send_bytes(message.data)
