"""Deletes a job and waits for its pods: the API server answers at once, and programs may take their grace period."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import msgspec

from trainmaster.client.change import Find
from trainmaster.client.job_finder import FoundJob, listed
from trainmaster.client.observation import SELECTOR, pods_of
from trainmaster.core.errors import Forbidden
from trainmaster.core.ids import POD
from trainmaster.core.view import WHOLE_CODEC, JobView
from trainmaster.core.wire import Wire
from trainmaster.kube.client import KubeCluster
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store

MORE_SECONDS = 15.0
"""Seconds that pods may take beyond their grace period, until they are not waited for any more."""
SILENT_SECONDS = 5.0
"""Seconds after which it is said what is waited for."""


class _Spec(Wire, frozen=True):
    termination_grace_period_seconds: int = 30


class _Pod(Wire, frozen=True):
    spec: _Spec = _Spec()


class Pods(msgspec.Struct, frozen=True):
    """The pods of a job when it was deleted."""

    names: Mapping[str, str] = {}
    """By uid."""
    grace: int = 0
    """Seconds that they may take to end, at most."""

    def __str__(self) -> str:
        return f"its {_count(len(self.names))} {'has' if len(self.names) == 1 else 'have'} up to {self.grace} s to end"


async def delete(
    cluster: KubeCluster, find: Find, *, waits: bool, say: Callable[[str], object]
) -> tuple[FoundJob, str]:
    """Returns the job, and what has become of it. ``say`` takes what is waited for, if it takes long."""
    job = await find()
    pods = await _pods(cluster, job)
    await cluster.delete(job.resource, job.key, uid=job.view.uid)
    if pods is None:
        return job, "is deleted; its pods, which you may not list, have their grace period to end"
    if not pods.names:
        return job, "is deleted; it has no pods"
    if not waits:
        return job, f"is deleted; {pods}"
    left = await _gone(cluster, job, pods, say)
    if left:
        return job, f"is deleted, but {_count(len(left))} did not end within {_limit(pods):g} s: {', '.join(left[:5])}"
    return job, "is deleted with its pods"


async def _pods(cluster: KubeCluster, job: FoundJob) -> Pods | None:
    """None without the right to list pods."""
    try:
        names = {pod.uid: pod.key.name for pod in (await pods_of(cluster, [job])).get(job.view.uid, ())}
        whole = await listed(cluster, POD, WHOLE_CODEC, job.key.namespace, SELECTOR)
    except Forbidden:
        return None
    specs = [msgspec.json.decode(pod.raw, type=_Pod).spec for pod in whole if pod.uid in names]
    return Pods(names, max((spec.termination_grace_period_seconds for spec in specs), default=0))


async def _gone(cluster: KubeCluster, job: FoundJob, pods: Pods, say: Callable[[str], object]) -> list[str]:
    """The names of the pods that are still there when the time is over."""
    store, changed = Store[JobView](POD), asyncio.Event()
    store.listen(lambda *_: changed.set())
    reflector = Reflector(cluster, store, WHOLE_CODEC, namespace=job.key.namespace, selector=SELECTOR)

    def left() -> list[str]:
        there = (store.get(key) for key in store.keys())  # noqa: SIM118  not a dict
        return sorted(pods.names[pod.uid] for pod in there if pod and pod.uid in pods.names)

    async def until_gone() -> None:
        await reflector.synced.wait()
        while left():
            changed.clear()
            await changed.wait()

    async with asyncio.TaskGroup() as group:
        watching, waiting = group.create_task(reflector.run()), group.create_task(until_gone())
        done, _ = await asyncio.wait((waiting,), timeout=SILENT_SECONDS)
        if not done:
            say(f"{job} is deleted; {pods}; Ctrl-C stops the waiting")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_limit(pods) - SILENT_SECONDS):
                    await asyncio.shield(waiting)
        waiting.cancel()
        watching.cancel()
    return left() if store.is_synced else sorted(pods.names.values())


def _limit(pods: Pods) -> float:
    return pods.grace + MORE_SECONDS


def _count(number: int) -> str:
    return f"{number} pod{'' if number == 1 else 's'}"
