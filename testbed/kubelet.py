"""Ends pods on KWOK's nodes as a kubelet does: a process of its own beside KWOK, started and ended with it by `plane`.

    python -m testbed.kubelet KUBECONFIG

KWOK's own stage for this, which stages/ leaves out, deletes a terminating pod by its name alone, and often twice. A
second delete that comes late kills the pod that somebody has created under the same name meanwhile. A kubelet deletes
the pod that it ran and no other: it gives the uid.
"""

import asyncio
import base64
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import uvloop
import yaml

from testbed.admin import path_of
from testbed.answer import Object

# A kubelet reports one pod after the other, and there are about as many nodes where load is measured.
IN_FLIGHT = 10
PAUSE = 0.2
DELETE_TIMEOUT = 30.0
WATCH_SECONDS = 3600
# aiohttp takes lines up to twice as long; no object is.
BUFFER = 2**20

KWOK_NODE = {"kwok.x-k8s.io/node": "fake"}
"""The annotation of nodes that KWOK takes care of."""
FOLLOWING = "following nodes and pods"
"""Said when it works."""


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """What says which object it is, and whether it is being deleted."""

    name: str
    uid: str
    namespace: str | None = None
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """The node that a pod is bound to."""

    node_name: str = ""


class Seen(msgspec.Struct, frozen=True):
    """What matters of a node or of a pod."""

    metadata: Meta
    spec: Spec


class ListMeta(msgspec.Struct, rename="camel"):
    """From where on to watch."""

    resource_version: str


class Listed(msgspec.Struct):
    """The answer to a list."""

    metadata: ListMeta
    items: list[Seen]


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: Seen


_LISTED = msgspec.json.Decoder(Listed)
_EVENT = msgspec.json.Decoder(Event)


class Source(NamedTuple):
    """What is followed, and who takes what is seen of it."""

    resource: str
    query: dict[str, str]
    take: Callable[[str, Seen], None]


class Lost(Exception):
    """What the API server says can no longer be followed, or a delete was refused: look at everything again."""


class Kubelet:
    """The kubelets of all nodes of KWOK, from one look at everything until something goes wrong."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._nodes: set[str] = set()
        self._leaving: dict[str, Seen] = {}
        """Pods being deleted, by uid: each is deleted once, also when it changes or waits for its finalizers."""
        self._due: asyncio.Queue[Meta] = asyncio.Queue()

    async def run(self) -> None:
        """Never returns."""
        sources = [
            Source("nodes", {}, self._take_node),
            Source("pods", {"fieldSelector": "spec.nodeName!="}, self._take_pod),
        ]
        versions = [await self._list(source) for source in sources]
        async with asyncio.TaskGroup() as group:
            for source, version in zip(sources, versions, strict=True):
                group.create_task(self._watch(source, version))
            for _ in range(IN_FLIGHT):
                group.create_task(self._work())
            _say(FOLLOWING)

    async def _list(self, source: Source) -> str:
        async with self._session.get(path_of(source.resource), params=source.query, raise_for_status=True) as answer:
            listed = _LISTED.decode(await answer.read())
        for item in listed.items:
            source.take("ADDED", item)
        return listed.metadata.resource_version

    async def _watch(self, source: Source, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS), **source.query}
        async with self._session.get(path_of(source.resource), params=query, raise_for_status=True) as answer:
            async for line in answer.content:
                if line.startswith(b'{"type":"ERROR"'):
                    raise Lost(f"the watch of {source.resource} failed: {line.decode()}")
                event = _EVENT.decode(line)
                source.take(event.type, event.object)
        raise Lost(f"the watch of {source.resource} ended")

    def _take_node(self, kind: str, node: Seen) -> None:
        name = node.metadata.name
        if kind == "DELETED":
            self._nodes.discard(name)
        elif name not in self._nodes and KWOK_NODE.items() <= node.metadata.annotations.items():
            self._nodes.add(name)
            for pod in self._leaving.values():
                if pod.spec.node_name == name:
                    self._due.put_nowait(pod.metadata)

    def _take_pod(self, kind: str, pod: Seen) -> None:
        uid = pod.metadata.uid
        if kind == "DELETED":
            self._leaving.pop(uid, None)
        elif pod.metadata.deletion_timestamp and uid not in self._leaving:
            self._leaving[uid] = pod
            # A node that is gone has no kubelet: its pods stay until it comes back or somebody forces them.
            if pod.spec.node_name in self._nodes:
                self._due.put_nowait(pod.metadata)

    async def _work(self) -> None:
        while True:
            await self._delete(await self._due.get())

    async def _delete(self, pod: Meta) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        path = path_of("pods", pod.namespace, pod.name)
        timeout = aiohttp.ClientTimeout(total=DELETE_TIMEOUT)
        async with self._session.delete(path, json=options, timeout=timeout) as answer:
            said = await answer.text()
        # 404: somebody forced it; 409: another pod has its name.
        if answer.status >= 300 and answer.status not in (404, 409):
            raise Lost(f"deleting pod {pod.namespace}/{pod.name} was answered with {answer.status}: {said[:500]}")
        _say(f"delete of {pod.namespace}/{pod.name} {pod.uid}: {answer.status}")


async def serve(kubeconfig: Object) -> None:
    """Until killed. The API server may cut a watch or be restarted: then everything is looked at again."""
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    async with aiohttp.ClientSession(
        cluster["server"],
        connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=ca)),
        headers={"Authorization": f"Bearer {user['token']}"},
        timeout=aiohttp.ClientTimeout(),
        read_bufsize=BUFFER,
    ) as session:
        while True:
            try:
                await Kubelet(session).run()
            except* (aiohttp.ClientError, OSError, Lost) as failed:
                _say(f"starting over: {failed.exceptions[0]!r}")
            await asyncio.sleep(PAUSE)


def _say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(yaml.safe_load(Path(sys.argv[1]).read_text())))
