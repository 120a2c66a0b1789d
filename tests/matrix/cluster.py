"""The rest of a cluster, one step at a time: scheduler, kubelets, taint manager and the controller of batch Jobs.

A pod that a node rejects, an image that cannot be pulled, a create that admission refuses: ``Cluster`` has a field for
each of these obstacles. All of them are functions of the object concerned, so a test says for which pods they hold.
"""

from collections.abc import Callable
from copy import deepcopy
from datetime import datetime, timedelta

import msgspec

from tests.laws.memory import MemoryApi, Object, owner_uid
from trainmaster.core.errors import ApiError
from trainmaster.core.ids import EVENT, JOB, NODE, POD, Key, Resource
from trainmaster.runtime.cluster import Written

GRACE = 30
"""terminationGracePeriodSeconds of all pods."""
TOLERATION = 300
"""Seconds after which the taint manager deletes pods of a node that is not ready."""

GPU = "nvidia.com/gpu"
"""Every node has eight of them."""

Predicate = Callable[[Object], bool]


class Api(MemoryApi):
    """The API server with a clock, and with admission that may refuse a create."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__()
        self._now = now
        self.refuse: Callable[[Resource, Object], ApiError | None] = lambda resource, body: None
        self.injected: list[Object] = []
        """The containers that admission adds to every pod, as that of a service mesh does."""

    def stamp(self, later: float = 0) -> str:
        return (self._now() + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def create(self, resource: Resource, namespace: str, body: bytes) -> Written:
        if error := self.refuse(resource, decoded(body)):
            raise error
        if resource == POD:
            body = msgspec.json.encode(self.admitted(decoded(body)))
        written = await super().create(resource, namespace, body)
        name = Key(namespace, decoded(body)["metadata"]["name"])
        self.objects[resource][name]["metadata"]["creationTimestamp"] = self.stamp()
        return written

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        limit: int = 0,
        cursor: str = "",
        max_bytes: int = 0,
    ) -> bytes:
        """Of Events by the fields that the operator asks for; of others all."""
        wanted = dict(term.split("=") for term in filter(None, fields.split(",")))
        found = decoded(await super().list(resource, namespace=namespace))
        found["items"] = [item for item in found["items"] if wanted.items() <= _selectable(item).items()]
        return msgspec.json.encode(found)

    def admitted(self, pod: Object) -> Object:
        containers = [*pod["spec"]["containers"], *self.injected]
        return {**pod, "spec": {**pod["spec"], "containers": containers}}

    def put(self, resource: Resource, body: Object) -> Key:
        """Stores an object as it is, with its uid and status."""
        key = Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])
        self._store("MODIFIED" if key in self.objects.get(resource, {}) else "ADDED", resource, key, deepcopy(body))
        return key

    def annotate_pod(self, key: Key, condition: Object) -> None:
        """Adds a condition to a pod, as the eviction API or the taint manager do."""
        others = self.objects[POD][key]["status"].get("conditions", [])
        self.set_status(POD, key, {"conditions": [*others, {"status": "True", **condition}]})

    def _leave(self, key: Key) -> Written:
        pod = deepcopy(self.objects[POD][key])
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"] |= {"deletionTimestamp": self.stamp(GRACE), "deletionGracePeriodSeconds": GRACE}
        return self._store("MODIFIED", POD, key, pod)


class Cluster:
    """Nodes and controllers around one job; ``step`` runs each of them once."""

    def __init__(self, api: Api, nodes: int) -> None:
        self.api = api
        self.away: dict[str, str] = {}
        """Nodes without a kubelet, with the time at which they were lost."""
        self.cordoned: set[str] = set()
        self.unschedulable: Callable[[Object], str] = lambda pod: ""
        """What the scheduler says of a pod that fits nowhere."""
        self.waiting: Callable[[Object], Object | None] = lambda pod: None
        """The container state of a pod that its kubelet cannot start."""
        self._seen: dict[str, set[str]] = {}
        """By batch Job: the uids of all pods that it ever had. Those that are gone have failed."""
        for number in range(1, nodes + 1):
            name = f"node-{number}"
            body = {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": {}}
            api.put(NODE, body | {"status": {"allocatable": {GPU: "8"}, "capacity": {GPU: "8"}}})
            self._set_ready(name, "True")

    # --- nodes ---

    def lose(self, name: str) -> None:
        """Its kubelet stops answering: the node controller says so, and its pods stay as they are."""
        self.away[name] = self.api.stamp()
        self._set_ready(name, "Unknown")

    def bring_back(self, name: str) -> None:
        self.away.pop(name, None)
        self._set_ready(name, "True")

    def remove_node(self, name: str) -> None:
        self.away[name] = self.api.stamp()
        self.api.remove(NODE, Key("", name))

    def _set_ready(self, name: str, status: str) -> None:
        said = {"message": "Kubelet stopped posting node status."} if status != "True" else {}
        ready = {"type": "Ready", "status": status, "lastTransitionTime": self.api.stamp(), **said}
        self.api.set_status(NODE, Key("", name), {"conditions": [ready]})

    # --- one step ---

    def step(self) -> None:
        self._control_jobs()
        self._evict()
        for key, pod in sorted(self.api.objects.get(POD, {}).items()):
            if not owner_uid(pod):
                continue  # a foreign object stays as it is
            if not pod["spec"].get("nodeName"):
                self._schedule(key, pod)
            elif pod["spec"]["nodeName"] not in self.away:
                self._run(key, pod)

    @property
    def pods(self) -> dict[Key, Object]:
        return self.api.objects.get(POD, {})

    def _schedule(self, key: Key, pod: Object) -> None:
        if message := self.unschedulable(pod):
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            if pod["status"].get("conditions") != [condition]:
                self.api.set_status(POD, key, {"conditions": [condition]})
            return
        used = [body["spec"].get("nodeName") for body in self.pods.values()]
        free = [k.name for k in self.api.objects[NODE] if k.name not in self.away and k.name not in self.cordoned]
        if free:
            self.api.bind(key, min(sorted(free), key=used.count))

    def _run(self, key: Key, pod: Object) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            self.api.remove(POD, key)
        elif pod["status"]["phase"] == "Pending":
            names = [container["name"] for container in pod["spec"]["containers"]]
            stuck = self.waiting(pod)
            state = {"waiting": stuck} if stuck else {"running": {"startedAt": self.api.stamp()}}
            statuses = [{"name": name, "image": "registry.example/train:1", "state": state} for name in names]
            if pod["status"].get("containerStatuses", [{}])[0].get("state") != state:
                phase = "Pending" if stuck else "Running"
                started = pod["status"].get("startTime", self.api.stamp())
                ready = [
                    {"type": type_, "status": "False" if stuck else "True"}
                    for type_ in ("PodReadyToStartContainers", "Ready")
                ]
                self.api.set_status(
                    POD,
                    key,
                    {"phase": phase, "startTime": started, "containerStatuses": statuses, "conditions": ready},
                )

    def _evict(self) -> None:
        """The taint manager, which holds back when most nodes are away."""
        if len(self.away) * 2 > len(self.api.objects[NODE]):
            return
        for key, pod in sorted(self.pods.items()):
            since = self.away.get(pod["spec"].get("nodeName", ""))
            is_leaving = "deletionTimestamp" in pod["metadata"]
            if since and not is_leaving and _parsed(since) + timedelta(seconds=TOLERATION) <= _parsed(self.api.stamp()):
                self.api.annotate_pod(key, {"type": "DisruptionTarget", "reason": "DeletionByTaintManager"})
                self.api._delete(POD, key, None)

    # --- batch Jobs: one pod each, counted until backoffLimit is exceeded ---

    def _control_jobs(self) -> None:
        for key, job in sorted(self.api.objects.get(JOB, {}).items()):
            uid = job["metadata"]["uid"]
            pods = self.api.owned_by(uid, POD)
            alive = {k: p for k, p in pods.items() if p["status"]["phase"] in ("Pending", "Running")}
            staying = {k: p for k, p in alive.items() if "deletionTimestamp" not in p["metadata"]}
            done = {p["metadata"]["uid"] for p in pods.values() if p["status"]["phase"] == "Succeeded"}
            seen = self._seen.setdefault(uid, set())
            seen |= {p["metadata"]["uid"] for p in pods.values()}
            failed = seen - done - {p["metadata"]["uid"] for p in staying.values()}
            if job.get("status", {}).get("succeeded"):
                continue
            if not job["spec"].get("suspend") and not job.get("status", {}).get("startTime"):
                self.api.set_status(JOB, key, {"startTime": self.api.stamp()})
            if done:
                self._set_job(key, {"succeeded": 1}, "SuccessCriteriaMet", "Complete")
            elif job["spec"].get("suspend"):
                self._stop(staying)
            elif len(failed) > job["spec"].get("backoffLimit", 6):
                self._stop(staying)
                self._set_job(key, {"failed": len(failed)}, "FailureTarget", *(() if alive else ("Failed",)))
            elif not alive:
                self._start(key, job, len(seen))

    def _stop(self, pods: dict[Key, Object]) -> None:
        for key in pods:
            self.api._delete(POD, key, None)

    def _set_job(self, key: Key, status: Object, *types: str) -> None:
        why = {"status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached its limit"}
        stored = self.api.objects[JOB][key].get("status", {})
        new = {**stored, **status, "conditions": [{"type": type_, **why} for type_ in types]}
        if stored != new:
            self.api.set_status(JOB, key, new)

    def _start(self, key: Key, job: Object, number: int) -> None:
        template, uid = deepcopy(job["spec"]["template"]), job["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": key.name, "uid": uid, "controller": True}
        pod_uid = f"{uid}-pod-{number}"
        pod = {
            "metadata": {
                "name": f"{key.name}-{number:05}",
                "namespace": key.namespace,
                "uid": pod_uid,
                "generation": 1,
                "creationTimestamp": self.api.stamp(),
                "labels": template["metadata"]["labels"],
                "annotations": template["metadata"].get("annotations", {}),
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        if error := self.api.refuse(POD, pod):
            self._complain(key, uid, f"Error creating: {error.message}")
        else:
            self.api.put(POD, self.api.admitted(pod))

    def _complain(self, key: Key, uid: str, message: str) -> None:
        """In one Event for each Job: the status of a Job does not say that its pod was refused."""
        about = {"apiVersion": "batch/v1", "kind": "Job", "name": key.name, "namespace": key.namespace, "uid": uid}
        name = Key(key.namespace, f"{key.name}.refused")
        if self.api.objects.get(EVENT, {}).get(name, {}).get("lastTimestamp") == self.api.stamp():
            return
        self.api.put(
            EVENT,
            {
                "metadata": {"name": name.name, "namespace": name.namespace, "uid": f"uid-of-{name.name}"},
                "involvedObject": about,
                "type": "Warning",
                "reason": "FailedCreate",
                "message": message,
                "lastTimestamp": self.api.stamp(),
            },
        )


def decoded(body: bytes) -> Object:
    found: Object = msgspec.json.decode(body)
    return found


def _selectable(item: Object) -> dict[str, str]:
    return {"reason": item.get("reason", ""), "involvedObject.uid": item.get("involvedObject", {}).get("uid", "")}


def _parsed(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)
