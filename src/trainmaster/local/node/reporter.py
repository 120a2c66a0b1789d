"""Writes the status of a pod to the API: only changes, only the newest one, with retries."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from trainmaster.core.errors import Conflict, Gone, Invalid, NotFound, Trainmaster
from trainmaster.core.ids import POD
from trainmaster.core.plan import merge_patch
from trainmaster.local.node.pod import Object, Pod
from trainmaster.runtime.backoff import POD_STATUS, Backoff
from trainmaster.runtime.cluster import Cluster

CONFLICT_PAUSE = 0.02

log = structlog.get_logger(__name__)


class Reporter:
    """One for each pod. ``pod`` is its newest version, including our own writes; ``want`` sets the desired status."""

    def __init__(self, cluster: Cluster, pod: Pod) -> None:
        self._cluster = cluster
        self.pod = pod
        self._make: Callable[[Pod], Object] | None = None
        self._must_delete = False
        self._dirty = asyncio.Event()
        self._backoff = Backoff(*POD_STATUS)

    def see(self, pod: Pod) -> None:
        """Called with each version that the watch shows, which may be older than our last write."""
        if pod.version > self.pod.version:
            self.pod = pod

    def want(self, make: Callable[[Pod], Object], *, then_delete: bool) -> None:
        """Reports the status that ``make`` builds from the newest version of the pod: other clients write to it, too.

        ``then_delete`` is set when no process of the pod is left and the API waits for the deletion.
        """
        self._make, self._must_delete = make, then_delete
        self._dirty.set()

    async def run(self) -> None:
        """Runs until the pod is deleted."""
        failures = 0
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._send()
                failures = 0
            except NotFound:
                return
            except Conflict:
                self._dirty.set()
                if not await self._refresh():
                    return
                await asyncio.sleep(CONFLICT_PAUSE)
            except Invalid as error:
                log.warning("the status of a pod was refused", pod=str(self.pod.key), because=str(error))
            except Trainmaster as error:
                failures += 1
                log.warning("cannot write the status of a pod, retrying", pod=str(self.pod.key), because=str(error))
                await asyncio.sleep(self._backoff.delay(failures))
                self._dirty.set()

    async def _send(self) -> None:
        pod = self.pod
        wanted = self._make(pod) if self._make else pod.status
        if patch := merge_patch(pod.status, wanted):
            # The resourceVersion belongs to this pod: a newer pod of the same name answers with a conflict.
            body = {"metadata": {"resourceVersion": str(pod.version)}, "status": patch}
            written = await self._cluster.patch(POD, pod.key, msgspec.json.encode(body), subresource="status")
            if self.pod is pod:
                metadata = {**pod.metadata, "resourceVersion": str(written.resource_version)}
                self.pod = Pod({**pod.body, "metadata": metadata, "status": wanted})
        if self._must_delete:
            await self._cluster.delete(POD, pod.key, uid=pod.uid, grace=0)

    async def _refresh(self) -> bool:
        """Reads the pod after a conflict; False if it was deleted or replaced."""
        try:
            pod = Pod.of(await self._cluster.get(POD, self.pod.key))
        except (NotFound, Gone):
            return False
        except Trainmaster:
            return True
        if pod.uid != self.pod.uid:
            return False
        self.pod = pod
        return True
