"""What tests ask a local cluster that is up, by its kubeconfig."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.build import kind_of
from tests.manifests.build import Manifest
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.kinds.aitrainingjob import types as aitrainingjob
from trainmaster.kinds.dijob import types as dijob
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.kubeconfig import load_config

DIJOB, AITJ = dijob.RESOURCE, aitrainingjob.RESOURCE
POLL = 0.05


async def until(is_so: Callable[[], bool]) -> None:
    """Look again and again: other processes ring no bell. The test's limit ends a wait in vain."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(POLL)


def api_of(state: Path) -> str:
    server: str = json.loads((state / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
    return server


@asynccontextmanager
async def client_of(state: Path) -> AsyncIterator[KubeCluster]:
    async with KubeCluster(load_config(kubeconfig=str(state / "kubeconfig"))) as cluster:
        yield cluster


async def create(cluster: KubeCluster, manifest: Manifest) -> None:
    version = manifest["apiVersion"].rpartition("/")[2]
    resource = msgspec.structs.replace(kind_of(manifest).resource, version=version)
    await cluster.create(resource, "default", json.dumps(manifest).encode())


async def items_of(cluster: KubeCluster, resource: Resource) -> list[dict[str, Any]]:
    return list(json.loads(await cluster.list(resource, namespace="default"))["items"])


async def until_running(cluster: KubeCluster, count: int) -> dict[str, str]:
    """The uids of the pods, by name, once so many of them run."""
    while True:
        pods = await items_of(cluster, POD)
        if [pod["status"].get("phase") for pod in pods].count("Running") == count:
            return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
        await asyncio.sleep(POLL)


async def until_ended(cluster: KubeCluster, resource: Resource, name: str) -> dict[str, Any]:
    """The status of a job that has ended, with its last phase as ``verdict``."""
    while True:
        status: dict[str, Any] = json.loads(await cluster.get(resource, Key("default", name))).get("status", {})
        for condition in status.get("conditions", []):
            if condition["type"] == "Finished":
                return {**status, "verdict": condition["reason"]}
        await asyncio.sleep(POLL)


async def until_phase(cluster: KubeCluster, resource: Resource, name: str, phase: str) -> None:
    while True:
        status = json.loads(await cluster.get(resource, Key("default", name))).get("status", {})
        if status.get("phase") == phase:
            return
        await asyncio.sleep(POLL)
