"""metrics.k8s.io: what pods and nodes use, as ``kubectl top`` shows it. The nodes are asked for it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import aiohttp
import msgspec

from trainmaster.local.apiserver.kubectl.pod_node import CONNECT_SECONDS, endpoint_of, unreachable

Object = dict[str, Any]

WINDOW = "500ms"
ANSWER_SECONDS = 10.0


async def summary_of(node: Object, session: aiohttp.ClientSession, node_token: str) -> Object:
    """What a node says about itself and its pods; raises Refusal."""
    url = f"{endpoint_of(node['metadata']['name'], node)}/stats/summary"
    headers = {"Authorization": f"Bearer {node_token}"} if node_token else {}
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
    try:
        async with session.get(url, headers=headers, timeout=timeout) as answer:
            answer.raise_for_status()
            summary: Object = msgspec.json.decode(await answer.read())
            return summary
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
        raise unreachable(url, error) from error


def of_nodes(nodes: Iterable[Object], summaries: Mapping[str, Object]) -> list[Object]:
    return [
        {**_head("NodeMetrics", node, stats), "usage": _usage(stats)}
        for node in nodes
        if (stats := summaries.get(node["metadata"]["name"], {}).get("node"))
    ]


def of_pods(pods: Iterable[Object], summaries: Mapping[str, Object]) -> list[Object]:
    """Pods whose containers do not run use nothing and are left out."""
    known = {pod["podRef"]["uid"]: pod for each in summaries.values() for pod in each["pods"]}
    found = []
    for pod in pods:
        containers = known.get(pod["metadata"]["uid"], {}).get("containers", [])
        if containers:
            usages = [{"name": each["name"], "usage": _usage(each)} for each in containers]
            found.append({**_head("PodMetrics", pod, containers[0]), "containers": usages})
    return found


MakeMetrics = Callable[[Iterable[Object], Mapping[str, Object]], list[Object]]


def _head(kind: str, obj: Object, stats: Object) -> Object:
    kept = ("name", "namespace", "creationTimestamp", "labels")
    return {
        "kind": kind,
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {key: obj["metadata"][key] for key in kept if key in obj["metadata"]},
        "timestamp": stats["cpu"]["time"],
        "window": WINDOW,
    }


def _usage(stats: Object) -> Object:
    return {"cpu": f"{stats['cpu']['usageNanoCores']}n", "memory": f"{stats['memory']['workingSetBytes'] // 1024}Ki"}
