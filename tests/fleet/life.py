"""One job of the fleet: what the watches show of it, what its kubelets and its user do, and what went wrong."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from testbed.admin import Admin
from testbed.answer import Refused
from tests.build import kind_of
from tests.fleet.story import CANNOT_START, DELETE_POD, SCALE_UP, SUCCEEDED, SUSPEND, End, Story
from tests.manifests.build import resource_of
from tests.matrix.kinds import DI, is_true

Object = dict[str, Any]

PATIENCE = 180.0
"""Seconds for one step of a job's life: a limit for the test, not a claim. Some steps wait for a Lease to expire."""
LONGEST_TRAINING = 3.0
"""Seconds that a pod runs before it ends."""


class Stuck(Exception):
    """A job does not take its next step."""


class Life:
    def __init__(self, admin: Admin, story: Story, namespace: str, name: str, chance: random.Random) -> None:
        self.story, self.namespace, self.name = story, namespace, name
        self.problems: list[str] = []
        self.job: Object = {}
        """As it was last seen, also after it was deleted."""
        self.is_gone = False
        self.pods: dict[str, Object] = {}
        """Those that exist, by uid."""
        self.services: set[str] = set()
        self.events: dict[str, tuple[str, str, int]] = {}
        """Type, reason and count, by uid."""
        self.restarted: list[int] = []
        """Charged restarts, whenever the number changed."""
        self._admin, self._chance = admin, chance
        self._manifest = story.manifest(name)
        self.resource = resource_of(self._manifest)
        self._slots = kind_of(self._manifest).slots
        self._made: dict[str, list[str]] = {}
        """All pods that there ever were, by replica."""
        self._injected: list[tuple[str, End]] = []
        self._has_acted = not story.act
        self._waiters: set[asyncio.Event] = set()
        self._kubelets: set[asyncio.Task[None]] = set()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.story.name})"

    # --- its whole life ---

    async def run(self) -> None:
        """Until the job is as its story says. What is wrong goes into ``problems``."""
        try:
            await self._create()
            await self._act()
            await self._until(self._is_over, "ends")
        except (Stuck, Refused) as error:
            self.problems.append(f"{error}; {self.describe()}")
        finally:
            for kubelet in self._kubelets:
                kubelet.cancel()
            ended = await asyncio.gather(*self._kubelets, return_exceptions=True)
            self.problems += [f"its kubelet: {error}" for error in ended if isinstance(error, Exception)]

    async def _create(self) -> None:
        status = self._manifest.pop("status", None)
        await self._admin.create(self.resource, self._manifest, self.namespace)
        if status:
            await self._admin.set_status(self.resource, self.namespace, self.name, status)

    def _is_over(self) -> bool:
        story = self.story
        has_result = not story.result or ("status" in self.job and story.row.result(self.job) == story.result)
        return has_result and self.is_gone is not story.is_kept and self._left() == sorted(story.left)

    def _left(self) -> list[str]:
        return sorted(self.replica_of(pod) for pod in self.pods.values())

    # --- what the watches show ---

    def see_job(self, kind: str, job: Object) -> None:
        before, self.job = self.job, job
        self.is_gone = kind == "DELETED"
        old, new = (self.story.row.result(each) if "status" in each else "" for each in (before, job))
        if old and new != old:
            self.problems.append(f"it had ended as {old}, and is {new or 'going on'} now")
        charged = self.story.charged(job)
        if charged != (self.restarted[-1] if self.restarted else 0):
            self.restarted.append(charged)
        self._tell()

    def see_pod(self, kind: str, pod: Object) -> None:
        uid, replica = pod["metadata"]["uid"], self.replica_of(pod)
        if kind == "DELETED":
            self.pods.pop(uid, None)
        else:
            made = self._made.setdefault(replica, [])
            if uid not in made:
                made.append(uid)
            was_running = _is_running(self.pods.get(uid, {}))
            self.pods[uid] = pod
            if _is_running(pod) and not was_running:
                kubelet = asyncio.ensure_future(self._train(uid, replica, made.index(uid)))
                self._kubelets.add(kubelet)
        going_on = [p["metadata"]["name"] for p in self.pods.values() if self.replica_of(p) == replica and _goes_on(p)]
        if len(going_on) > 1:
            self.problems.append(f"{replica} has several pods at the same time: {going_on}")
        self._tell()

    def replica_of(self, pod: Object) -> str:
        """Pods that di-server requests have names of their own."""
        if self.story.row.contract == DI:
            return str(pod["metadata"]["name"]).removeprefix(f"{self.name}-")
        role, index = self._slots.slot_of(pod["metadata"]["labels"]) or ("", 0)
        return f"{role.lower()}-{index}"

    def _tell(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    async def _until(self, is_met: Callable[[], object], what: str) -> None:
        changed = asyncio.Event()
        self._waiters.add(changed)
        try:
            async with asyncio.timeout(PATIENCE):
                while not is_met():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise Stuck(f"after {PATIENCE:.0f} s it is not so that it {what}") from None
        finally:
            self._waiters.discard(changed)

    def describe(self) -> str:
        pods = {
            pod["metadata"]["name"]: f"{pod['status']['phase']}{'' if _stays(pod) else ', being deleted'}"
            for pod in self.pods.values()
        }
        return f"injected {self._injected}, pods {pods}, gone {self.is_gone}, status {self.job.get('status')}"

    # --- its kubelets ---

    async def _train(self, uid: str, replica: str, number: int) -> None:
        """A pod that runs ends as the story says."""
        ends = self.story.ends.get(replica, ())
        is_fault = number < len(ends)
        if not is_fault and not self.story.ends_by_itself(replica):
            return
        end = ends[number] if is_fault else 0
        await asyncio.sleep(self._chance.uniform(0, LONGEST_TRAINING))
        while True:
            await self._until(lambda: not self._is_there(uid) or is_fault or self._may_succeed(), "succeeds")
            if not self._is_there(uid):
                return
            pod = self.pods[uid]
            try:
                await self._report(pod, end)
            except Refused as refused:
                if refused.code == 404:
                    return
                if refused.code != 409:
                    raise
                await self._until(lambda seen=pod: self.pods.get(uid) is not seen, "changes")  # type: ignore[misc]  # mypy infers no lambda with a default
            else:
                if is_fault:
                    self._injected.append((replica, end))
                return

    def _is_there(self, uid: str) -> bool:
        return uid in self.pods and _stays(self.pods[uid])

    def _may_succeed(self) -> bool:
        """All that the story has for the job has happened: a success before that could be its end."""
        story = self.story
        return (
            self._has_acted
            and self._made.keys() >= {*story.contract.replicas}
            and self._has_replacements()
            and len(self._injected) == story.faults
            and story.charged(self.job) >= self._used()
            and self._moved() >= story.moved
        )

    def _used(self) -> int:
        """The restarts that should be charged. What fails within ten seconds of another replica is one restart."""
        story = self.story
        if len(story.ends) < 2:
            return story.used
        times = [datetime.fromisoformat(each["time"]) for each in self.job.get("status", {}).get("restartHistory", ())]
        has_window = len(times) == 2 and times[1] - times[0] <= timedelta(seconds=10)
        return story.used - has_window

    def _has_replacements(self) -> bool:
        """Of all pods that have failed, under the same name or another one."""
        story = self.story
        if story.replaced:
            made = Counter(replica.partition("-")[0] for replica in self._made)
            return made >= Counter(story.replaced)
        return all(len(self._made.get(replica, ())) > len(ends) for replica, ends in story.ends.items())

    def _moved(self) -> int:
        return int(self.job.get("status", {}).get("reschedules", 0))

    async def _report(self, pod: Object, end: End) -> None:
        """For the version that was seen: of a pod that is being deleted meanwhile nobody asks how it ended."""
        meta = {key: pod["metadata"][key] for key in ("uid", "resourceVersion")}
        is_program = isinstance(end, int) or end == CANNOT_START
        code = end if isinstance(end, int) else 128 if end == CANNOT_START else 137
        reason = "StartError" if end == CANNOT_START else "Error" if code else "Completed"
        statuses = [
            status | {"ready": False, "state": {"terminated": {"exitCode": code, "reason": reason}}}
            for status in pod["status"]["containerStatuses"]
        ]
        status: Object = {"phase": "Failed" if code else "Succeeded", "containerStatuses": statuses}
        if not is_program:
            status |= {"reason": end, "message": "the node ends its pods"}
        path = ("pods", self.namespace, pod["metadata"]["name"])
        await self._admin.patch(*path, {"metadata": meta, "status": status}, subresource="status")

    # --- its user ---

    async def _act(self) -> None:
        story = self.story
        if not story.act:
            return
        await self._until(self._runs, "runs")
        match story.act:
            case "suspend":
                await self._edit(story.row.suspend, True)
                await self._until(lambda: is_true(self.job, "Suspended") and not self.pods, "is suspended")
                await self._edit(story.row.suspend, False)
            case "scale up" | "scale down":
                await self._scale(1 if story.act == SCALE_UP else -1)
            case "delete a pod":
                await self._delete_pod()
            case "delete":
                await self._admin.delete(self.resource, self.namespace, self.name)
        self._has_acted = True
        self._tell()

    def _runs(self) -> bool:
        """With all its pods, and it says so: only of a pod that is known to run the deletion is a fault."""
        size = len(self.story.contract.replicas)
        status = self.job.get("status", {})
        ready = status.get("summary", {}).get("ready")
        return "status" in self.job and self.story.row.is_running(self.job) and ready == f"{size}/{size}"

    async def _edit(self, path: tuple[str | int, ...], value: object) -> None:
        spec = deepcopy(self.job["spec"])
        place = spec
        for step in path[:-1]:
            place = place[step] if isinstance(step, int) else place.setdefault(step, {})
        place[path[-1]] = value
        change = {"spec": {path[0]: spec[path[0]]}}
        await self._admin.patch(self.resource, self.namespace, self.name, change)

    async def _scale(self, by: int) -> None:
        """In the spec, or of a DIJob by what di-server declares."""
        contract, path = self.story.contract, self.story.row.replicas
        if path:
            await self._edit(path, 2 + by)
            gone = contract.victim
        else:
            gone = "collector-ccccc"
            new = {f"{self.name}-{contract.grown}": {"role": "collector", "at": "2026-01-01T00:00:00Z"}}
            members: Object = new if by > 0 else {f"{self.name}-{gone}": None}
            change = {"declared": {"members": members}}
            await self._admin.set_status(self.resource, self.namespace, self.name, change)
        wanted = {*contract.replicas, contract.grown} if by > 0 else {*contract.replicas} - {gone}
        await self._until(lambda: self._left() == sorted(wanted), "has the new number of pods")

    async def _delete_pod(self) -> None:
        victim = self.story.contract.victim
        pod = next(pod for pod in self.pods.values() if self.replica_of(pod) == victim)
        meta = pod["metadata"]
        await self._admin.delete("pods", self.namespace, meta["name"], uid=meta["uid"])
        await self._until(lambda: len(self._made[victim]) > 1, "has another pod")

    # --- how it has ended ---

    def wrong(self) -> Iterator[str]:
        """What is not as the story says. To be asked when all is over."""
        yield from dict.fromkeys(self.problems)
        story = self.story
        if not self._is_over():
            yield f"it has not ended as it should: {story.result or 'deleted'}, {sorted(story.left)} left"
        if len(self._injected) != story.faults:
            yield f"{len(self._injected)} pods have failed, and {story.faults} should have"
        stored = [0, *self.restarted]
        if stored != sorted(stored) or stored[-1] != self._used():
            yield f"{self._used()} restarts should be counted, and these numbers were stored: {self.restarted}"
        if self._moved() != story.moved:
            yield f"{story.moved} reschedules should be counted, and {self._moved()} are"
        told = sum(count for type_, reason, count in self.events.values() if (type_, reason) in story.contract.events)
        if told > story.used:
            yield f"Events tell of {told} restarts, and there were {story.used}"
        most = 1 + story.used + story.moved + (story.act in (SUSPEND, DELETE_POD))
        for replica, made in self._made.items():
            if len(made) > most:
                yield f"{replica} had {len(made)} pods, one after the other, and should have had {most} at most"
        if story.clean == "All" and story.result == SUCCEEDED and self.services:
            yield f"services are left: {sorted(self.services)}"


def _is_running(pod: Object) -> bool:
    return bool(pod) and pod["status"].get("phase") == "Running" and _stays(pod)


def _goes_on(pod: Object) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def _stays(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"]
