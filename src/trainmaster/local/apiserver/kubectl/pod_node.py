"""What requests that a node answers have in common: which container, and where the node is."""

from typing import Any

import msgspec

from trainmaster.local.apiserver.http.status import Refusal, bad_request

Object = dict[str, Any]

CONNECT_SECONDS = 10.0


def container_of(pod: Object, wanted: str) -> str:
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


def node_url(pod: Object, node: Object | None, endpoint: str, container: str) -> str:
    """The address of an endpoint of the pod's node that is about a container."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    host = pod.get("spec", {}).get("nodeName", "")
    if not host:
        raise bad_request(f"pod {name} does not have a host assigned")
    return f"{endpoint_of(host, node)}/{endpoint}/{namespace}/{name}/{container}"


def endpoint_of(name: str, node: Object | None) -> str:
    """The address at which a node answers."""
    status = (node or {}).get("status", {})
    address = next(
        (each.get("address", "") for each in status.get("addresses", ()) if each.get("type") == "InternalIP"), ""
    )
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)
    if not address or not port:
        raise _server_error(f"no address or port known for node {name}, so it cannot be reached; is the node running?")
    return f"https://{address}:{port}"


def node_refusal(code: int, text: str) -> Refusal:
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


def unreachable(url: str, error: BaseException) -> Refusal:
    why = str(error) or type(error).__name__
    return _server_error(f'error dialing the node: Get "{url}": {why}; is the node running?')
