"""The Job controller: creates the pods of a batch/v1 Job, counts how they end, and finishes the Job.

``job_decision`` decides; this module applies the decision. A crash between two writes loses nothing: a pod keeps its
finalizer until it is noted in the status, and noted pods are counted by the next pass.
"""

import secrets
from collections import defaultdict
from typing import Any

from trainmaster.core.ids import EVENT, JOB, POD, Resource
from trainmaster.local.apiserver.controllers import job_decision
from trainmaster.local.apiserver.controllers.job_decision import Decision, JobEvent, Moment, Streak
from trainmaster.local.apiserver.controllers.job_pod import FINALIZER, JobPod
from trainmaster.local.apiserver.controllers.worker import Worker
from trainmaster.local.apiserver.http.status import Refusal
from trainmaster.local.apiserver.objects.delete import DeleteOptions, Preconditions, delete
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.objects.write import WriteOptions, create, patch
from trainmaster.local.apiserver.store.store import Change, Place, Stored

Object = dict[str, Any]

COMPONENT = "job-controller"
_RETRY = 10.0
"""Seconds before a retry after a pod was refused."""
_QUIET = WriteOptions(validation="Ignore")
_OWNED = b'"batch/v1"'
"""In every pod that a Job owns, and in hardly any other pod: other pods are not decoded."""
_TRACKED = FINALIZER.encode()


class JobController:
    """Follows Jobs and their pods in the store."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pods: defaultdict[str, set[Place]] = defaultdict(set)
        self._streaks: dict[str, Streak] = {}
        """By uid of the Job; not persistent, as in kube-controller-manager."""
        self.worker: Worker[Place] = Worker("jobs", self._handle)
        for stored in state.store.select(str(POD)):
            self._link(stored)
            self.worker.add(stored.place)
        for stored in state.store.select(str(JOB)):
            self.worker.add(stored.place)
        state.store.listen(self._observe)

    def _observe(self, change: Change) -> None:
        if change.place.resource == str(JOB):
            self.worker.add(change.place)
            if change.after is None:
                self._forget(change)
        elif change.place.resource == str(POD):
            if change.before is not None:
                self._unlink(change.before)
            if change.after is not None:
                self._link(change.after)
            if _TRACKED in change.last.body:
                self.worker.add(change.place)

    def _forget(self, change: Change) -> None:
        uid = change.last.decode()["metadata"]["uid"]
        self._streaks.pop(uid, None)
        self.worker.forget(change.place)
        for pod in self._pods.get(uid, ()):
            self.worker.add(pod)

    def _link(self, stored: Stored) -> None:
        owner = _owner(stored)
        if owner is not None:
            self._pods[owner["uid"]].add(stored.place)
            self.worker.add(Place(str(JOB), stored.place.namespace, owner["name"]))

    def _unlink(self, stored: Stored) -> None:
        owner = _owner(stored)
        if owner is not None:
            self._pods[owner["uid"]].discard(stored.place)
            if not self._pods[owner["uid"]]:
                del self._pods[owner["uid"]]
            self.worker.add(Place(str(JOB), stored.place.namespace, owner["name"]))

    # -- one pass ----------------------------------------------------------------------------------------------

    def _handle(self, place: Place) -> None:
        stored = self._state.store.get(place)
        if stored is None:
            return
        if place.resource == str(POD):
            self._release_orphan(stored)
            return
        job = stored.decode()
        if "deletionTimestamp" in job["metadata"]:
            for pod in self._pods_of(job):
                self._release(place, pod)
        elif (ended_at := job_decision.ended_at(job["status"])) is not None:
            self._expire(place, job, ended_at)
        else:
            self._count(place, job)
            now = Moment(self._state.now().timestamp(), self._state.timestamp())
            streak = self._streaks.get(job["metadata"]["uid"], Streak())
            self._apply(place, job, job_decision.decide(job, self._pods_of(job), now, streak))

    def _release_orphan(self, stored: Stored) -> None:
        """Removes the finalizer of a pod whose Job is deleted: the pod will not be counted."""
        owner = _owner(stored)
        job = None if owner is None else self._state.store.get(Place(str(JOB), stored.place.namespace, owner["name"]))
        if owner is None or job is None or job.decode()["metadata"]["uid"] != owner["uid"]:
            self._release(stored.place, JobPod.of(stored.decode()))

    def _pods_of(self, job: Object) -> list[JobPod]:
        places = sorted(self._pods.get(job["metadata"]["uid"], ()))
        return [JobPod.of(stored.decode()) for place in places if (stored := self._state.store.get(place)) is not None]

    def _count(self, place: Place, job: Object) -> None:
        pods = job_decision.uncounted(job, self._pods_of(job))
        if pods:
            uid = job["metadata"]["uid"]
            self._store_status(place, job, job_decision.noted(job["status"], pods))
            now = self._state.now().timestamp()
            self._streaks[uid] = self._streaks.get(uid, Streak()).after(pods, now)
        for pod in pods:
            self._release(place, pod)
        # Stored together with the decision. After a crash the same pods are still noted and are counted again.
        job["status"] = job_decision.counted(job["status"])

    def _apply(self, place: Place, job: Object, decision: Decision) -> None:
        self._store_status(place, job, decision.status)
        for event in decision.events:
            self._record_event(job, event)
        for pod in decision.surplus:
            self._release(place, pod)
        for pod in (*decision.surplus, *decision.deleted):
            self._delete_pod(place, job, pod)
        is_refused = not all(self._create_pod(place, job) for _ in range(decision.created))
        waits = [_RETRY] if is_refused else []
        if decision.wake_at is not None:
            waits.append(max(0.0, decision.wake_at - self._state.now().timestamp()))
        self.worker.forget(place)
        if waits:
            self.worker.add_after(place, min(waits))

    def _expire(self, place: Place, job: Object, ended_at: float) -> None:
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return
        left = ended_at + seconds - self._state.now().timestamp()
        if left > 0:
            self.worker.add_after(place, left)
        else:
            self._delete(place, JOB, job["metadata"]["uid"], "Foreground")

    # -- writes ------------------------------------------------------------------------------------------------

    def _store_status(self, place: Place, job: Object, status: Object) -> None:
        stored = self._state.store.get(place)
        job["status"] = status
        if stored is not None and stored.decode()["status"] != status:
            self._state.store.put(place, job)

    def _create_pod(self, place: Place, job: Object) -> bool:
        """False if the API refused the pod."""
        try:
            made = create(self._state, Target(self._served(POD), place.namespace), _pod_of(job), _QUIET)
        except Refusal as refusal:
            self._record_event(job, JobEvent("FailedCreate", f"Error creating: {refusal}", "Warning"))
            return False
        self._record_event(job, JobEvent("SuccessfulCreate", f"Created pod: {made.stored.place.name}"))
        return True

    def _delete_pod(self, place: Place, job: Object, pod: JobPod) -> None:
        if self._delete(Place(str(POD), place.namespace, pod.name), POD, pod.uid, "Background"):
            self._record_event(job, JobEvent("SuccessfulDelete", f"Deleted pod: {pod.name}"))

    def _delete(self, place: Place, resource: Resource, uid: str, policy: str) -> bool:
        target = Target(self._served(resource), place.namespace, place.name)
        try:
            delete(self._state, target, DeleteOptions(preconditions=Preconditions(uid=uid), propagation_policy=policy))
        except Refusal:
            return False  # deleted or replaced meanwhile
        return True

    def _release(self, place: Place, pod: JobPod) -> None:
        """Removes our finalizer from a pod."""
        if not pod.is_tracked:
            return
        target = Target(self._served(POD), place.namespace, pod.name)
        try:
            patch(self._state, target, _untracked, _QUIET)
        except Refusal:
            return  # deleted meanwhile

    def _record_event(self, job: Object, event: JobEvent) -> None:
        meta, now = job["metadata"], self._state.timestamp()
        about = {
            "kind": JOB.kind,
            "apiVersion": JOB.api_version,
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        }
        body = {
            "metadata": {"name": f"{meta['name']}.{secrets.token_hex(8)}"},
            "involvedObject": about,
            "reason": event.reason,
            "message": event.message,
            "type": event.type,
            "source": {"component": COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            create(self._state, Target(self._served(EVENT), meta["namespace"]), body, _QUIET)
        except Refusal:
            return  # the namespace is being deleted

    def _served(self, resource: Resource) -> Served:
        served = self._state.catalog.of_resource(str(resource))
        assert served is not None  # noqa: S101 – built in
        return served


def _owner(stored: Stored) -> Object | None:
    """The Job that controls a pod."""
    if _OWNED not in stored.body:
        return None
    for owner in stored.decode()["metadata"].get("ownerReferences", ()):
        if owner.get("controller") and (owner["apiVersion"], owner["kind"]) == (JOB.api_version, JOB.kind):
            controller: Object = owner
            return controller
    return None


def _untracked(pod: Object) -> Object:
    meta = pod["metadata"]
    meta["finalizers"] = [each for each in meta.get("finalizers", ()) if each != FINALIZER]
    return pod


def _pod_of(job: Object) -> Object:
    meta, template = job["metadata"], job["spec"]["template"]
    kept = {key: template["metadata"][key] for key in ("labels", "annotations") if key in template["metadata"]}
    owner = {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    finalizers = [*template["metadata"].get("finalizers", ()), FINALIZER]
    prefix = f"{meta['name']}-"
    return {
        "metadata": {**kept, "generateName": prefix, "finalizers": finalizers, "ownerReferences": [owner]},
        "spec": template["spec"],
    }
