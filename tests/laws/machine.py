"""Random histories: users edit and delete, kubelets report, watches lag, the operator fails and dies.

After every step the laws hold; at the end the disturbances stop and the job must settle.
"""

import asyncio
import os
from typing import ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.laws.batch import control_jobs, is_over
from tests.laws.maker import MAKERS, Maker
from tests.laws.memory import MemoryApi, Object, owner_uid
from tests.laws.operator import (
    ENDED,
    FAULTS,
    Crash,
    LawBroken,
    Operator,
    Trouble,
    VirtualLoop,
    counts_of,
    restarts_of,
    stored_ports,
)
from trainmaster.core.errors import NotSynced
from trainmaster.core.ids import JOB, NODE, POD, SERVICE, Key, Resource

KEYS = (Key("n", "a"), Key("n", "b"))
NODES = ("node-1", "node-2")
UNKNOWN = {"nested": {"field": 1}}
"""What a status may have that no wire type knows."""
SETTLE_ROUNDS = 40
STEPS = 30
MACHINES = len(MAKERS) + 3
"""One for each kind, and for gangs, scale storms and declared replicas."""
ASKED = int(os.environ.get("TRAINMASTER_HISTORIES", "0"))
"""How many histories of all machines together ``make histories N=10000`` asks for."""

pick = st.integers(0, 7)
place = st.integers(0, 11)
"""Of a resource, of which there are three or four."""


class JobMachine(RuleBasedStateMachine):
    maker: ClassVar[Maker]

    def __init__(self) -> None:
        super().__init__()
        self.api = MemoryApi()
        self.loop = VirtualLoop()
        self.operator = Operator(self.api, self.maker, self.loop)
        self.kind = self.operator.kind
        self.children: tuple[Resource, ...] = (POD, SERVICE, *self.kind.children)
        related = self.kind.related
        self.resources = (self.kind.resource, *self.children, *([related.resource] if related else []))
        self.ended: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.verdicts: dict[str, str] = {}
        self.ports: dict[str, dict[tuple[str, str], int]] = {}
        self.restarts: dict[str, dict[str, int]] = {}
        self.failures: dict[str, set[str]] = {}
        """The pods that have failed, by the uid of their job."""
        self.pods: dict[str, set[str]] = {}
        """All pods that there ever were, by the uid of their job."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Every history has a job with pods: the empty ones prove nothing. In many a second one comes with it."""
        keys = data.draw(st.sampled_from([KEYS[:1], KEYS]))
        for key in keys:
            self.apply(key, data)
        for _ in range(2):
            self.operator.catch_up()
            for key in keys:
                self._pass(key, None)

    # --- users ---

    @rule(key=st.sampled_from(KEYS), data=st.data())
    def apply(self, key: Key, data: st.DataObject) -> None:
        """Creates a job, or gives it a new spec."""
        spec = data.draw(self.maker.specs())
        if key in self.api.objects.get(self.kind.resource, {}):
            self.api.edit(self.kind.resource, key, spec)
        else:
            body = msgspec.json.encode(self.maker.manifest(key, spec))
            self.loop.run_until_complete(self.api.create(self.kind.resource, key.namespace, body))
            self.api.set_status(self.kind.resource, key, {"ofANewerVersion": UNKNOWN})

    @rule(number=pick, which=pick, stays=st.booleans())
    def annotate(self, number: int, which: int, stays: bool) -> None:
        """Somebody tells a job something, or takes it back."""
        jobs, words = sorted(self.api.objects.get(self.kind.resource, {})), self.maker.annotations
        if jobs and words and number < 4:  # rarely: most of them are the end
            told = {words[which % len(words)]: "said"} if stays else {}
            self.api.annotate(self.kind.resource, jobs[number % len(jobs)], told)

    @rule(number=pick)
    def delete_job(self, number: int) -> None:
        if jobs := sorted(self.api.objects.get(self.kind.resource, {})):
            self.api.remove(self.kind.resource, jobs[number % len(jobs)])

    @rule(number=pick, resource=st.sampled_from([POD, SERVICE]), forced=st.booleans())
    def delete_child(self, number: int, resource: Resource, forced: bool) -> None:
        if keys := sorted(self.api.objects.get(resource, {})):
            key = keys[number % len(keys)]
            self.loop.run_until_complete(self.api.delete(resource, key, uid="", grace=0 if forced else None))

    # --- the cluster ---

    @rule(number=pick, to=st.sampled_from(["bound", "Running", "restarted", "Succeeded", "Failed", "gone"]))
    def report_pod(self, number: int, to: str) -> None:
        """A scheduler or a kubelet does its next step."""
        if keys := sorted(self.api.objects.get(POD, {})):
            self._report(keys[number % len(keys)], to)

    @rule(to=st.sampled_from(["bound", "Running", "Succeeded", "Failed", "gone"]))
    def report_all_pods(self, to: str) -> None:
        for key in sorted(self.api.objects.get(POD, {})):
            self._report(key, to)

    @rule()
    def collect_garbage(self) -> None:
        self.api.collect_garbage(self.kind.resource, self.children)

    @rule(seconds=st.sampled_from([1, 10, 600]))
    def tick(self, seconds: int) -> None:
        self.loop.virtual += seconds

    # --- the operator ---

    @rule(number=place, count=st.integers(1, 4))
    def deliver(self, number: int, count: int) -> None:
        self.operator.deliver(self.resources[number % len(self.resources)], count)

    @rule(number=place)
    def list_again(self, number: int) -> None:
        """At the start, or after 410 Gone."""
        self.operator.sync(self.resources[number % len(self.resources)])

    @rule()
    def catch_up(self) -> None:
        self.operator.catch_up()

    @rule(key=st.sampled_from(KEYS))
    def run_pass(self, key: Key) -> None:
        self._pass(key, None)

    @rule(key=st.sampled_from(KEYS))
    def run_two_passes_before_the_watch_tells(self, key: Key) -> None:
        self.operator.catch_up()
        self._pass(key, None)
        self._pass(key, None)

    @rule(key=st.sampled_from(KEYS), at=st.integers(0, 6), what=st.sampled_from([*FAULTS, "crash"]))
    def run_pass_in_trouble(self, key: Key, at: int, what: str) -> None:
        self._pass(key, Trouble(at, what))

    @rule(to=st.sampled_from(["Running", "Succeeded", "Failed"]))
    def make_progress(self, to: str) -> None:
        """A calm moment: without some of these a history never gets far."""
        for step in ("bound", to):
            for _ in range(3):
                self.operator.catch_up()
                for key in KEYS:
                    self._pass(key, None)
            self.report_all_pods(step)

    @rule(number=place)
    def restart(self, number: int) -> None:
        """A new process that begins to work while only one of its lists is complete."""
        self.operator = Operator(self.api, self.maker, self.loop)
        self.operator.sync(self.resources[number % len(self.resources)])
        self._pass(KEYS[0], None)

    # --- the laws ---

    @invariant()
    def terminal_phases_are_never_left(self) -> None:
        for job in self._jobs():
            uid, phase = job["metadata"]["uid"], job.get("status", {}).get("phase", "")
            if uid in self.ended and phase != self.ended[uid]:
                raise LawBroken(f"monotone: {self.ended[uid]} became {phase}")
            if phase and phase not in self.maker.kind.phases:
                raise LawBroken(f"{phase} is not among the phases of the kind, which metrics are counted by")
            if phase in ENDED:
                self.ended[uid] = phase

    @invariant()
    def unknown_fields_of_the_status_survive(self) -> None:
        """A newer operator, or one of another vendor, may have stored them."""
        for job in self._jobs():
            if job["status"].get("ofANewerVersion") != UNKNOWN:
                raise LawBroken(f"round-trip: an unknown field of the status was removed: {job['status']}")

    @invariant()
    def the_observed_generation_never_goes_back(self) -> None:
        for job in self._jobs():
            uid, seen = job["metadata"]["uid"], job.get("status", {}).get("observedGeneration", 0)
            if seen < self.generations.get(uid, 0):
                raise LawBroken("monotone: observedGeneration went back")
            self.generations[uid] = seen

    @invariant()
    def a_slot_is_filled_at_most_once(self) -> None:
        slots = [
            (owner, self.kind.slots.slot_of(body["metadata"]["labels"]))
            for owner in {job["metadata"]["uid"] for job in self._jobs()}
            for body in self.api.owned_by(owner, POD).values()
        ]
        if len(slots) != len(set(slots)):
            raise LawBroken(f"two pods fill one slot: {slots}")

    @invariant()
    def a_verdict_once_stored_is_the_end_that_comes(self) -> None:
        for job in self._jobs():
            uid, status = job["metadata"]["uid"], job.get("status", {})
            verdict = (status.get("ending") or {}).get("phase") or (status["phase"] if uid in self.ended else "")
            if verdict and self.verdicts.setdefault(uid, verdict) != verdict:
                raise LawBroken(f"monotone: {self.verdicts[uid]} was the verdict, now {verdict}")

    @invariant()
    def restart_counters_never_go_back(self) -> None:
        for job in self._jobs():
            uid, counted = job["metadata"]["uid"], restarts_of(job.get("status", {}))
            if any(counted.get(role, 0) < before for role, before in self.restarts.get(uid, {}).items()):
                raise LawBroken(f"monotone: {self.restarts[uid]} restarts were counted, now {counted}")
            self.restarts[uid] = counted

    @invariant()
    def a_failure_is_counted_once(self) -> None:
        """That it is counted at all, before its pod is deleted, is a law about that delete."""
        for job in self._jobs():
            uid, restarts = job["metadata"]["uid"], counts_of(job.get("status", {}))
            used = sum(of_role.get("used", 0) for of_role in restarts.values())
            failed = self.failures.get(uid, set()) | (self._missed(uid) if self.maker.misses_pods else set())
            if used > len(failed):
                raise LawBroken(f"monotone: {used} restarts, but only {len(failed)} pods have failed")

    @invariant()
    def a_port_is_given_once_and_stays(self) -> None:
        going_on = {job["metadata"]["uid"]: stored_ports(job) for job in self._jobs() if not _has_ended(job)}
        given = [number for ports in going_on.values() for number in ports.values()]
        if len(given) != len(set(given)):
            raise LawBroken(f"a port is given twice: {going_on}")
        for uid, ports in going_on.items():
            if not self.ports.setdefault(uid, {}).items() <= ports.items():
                raise LawBroken(f"monotone: {self.ports[uid]} were given, now {ports}")
            self.ports[uid] = ports

    @invariant()
    def no_two_pods_of_jobs_that_go_on_hold_the_same_port(self) -> None:
        held = [
            port["hostPort"]
            for job in self._jobs()
            if not _has_ended(job)
            for pod in self.api.owned_by(job["metadata"]["uid"], POD).values()
            for port in pod["spec"]["containers"][0]["ports"]
            if "hostPort" in port
        ]
        if len(held) != len(set(held)):
            raise LawBroken(f"two pods hold one port: {held}")

    def teardown(self) -> None:
        try:
            self._settle()
            for key, job in self.api.objects.get(self.kind.resource, {}).items():
                self._check_settled(key, job)
        finally:
            self.loop.close()
            asyncio.set_event_loop(None)

    # --- inside ---

    def _jobs(self) -> list[Object]:
        return list(self.api.objects.get(self.kind.resource, {}).values())

    def _missed(self, owner: str) -> set[str]:
        """The pods of a job that are gone, or told to go, by whomever."""
        pods = self.api.owned_by(owner, POD).values()
        self.pods.setdefault(owner, set()).update(pod["metadata"]["uid"] for pod in pods)
        staying = {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
        return self.pods[owner] - staying

    def _report(self, key: Key, to: str) -> None:
        pod = self.api.objects[POD][key]
        if to == "gone":
            if "deletionTimestamp" in pod["metadata"]:
                self.api.remove(POD, key)
        elif not pod["spec"].get("nodeName"):
            self._bind(key)
        elif to != "bound" and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            name = pod["spec"]["containers"][0]["name"]
            ended = {"terminated": {"exitCode": int(to in ("Failed", "restarted")), "reason": "Error"}}
            status = {"name": name, "state": {} if to in ("Running", "restarted") else ended}
            if to == "restarted":  # in place, by the kubelet
                status |= {"restartCount": 1, "lastState": ended}
            ready = {"type": "Ready", "status": str(to == "Running")}
            phase = "Running" if to == "restarted" else to
            self.api.set_status(POD, key, {"phase": phase, "conditions": [ready], "containerStatuses": [status]})
            if to in ("Failed", "restarted"):
                self.failures.setdefault(owner_uid(pod), set()).add(pod["metadata"]["uid"])

    def _bind(self, key: Key) -> None:
        self.api.bind(key, NODES[0])

    def _pass(self, key: Key, trouble: Trouble | None) -> None:
        try:
            self.operator.run_pass(key, trouble)
        except NotSynced:
            pass
        except Crash:
            self.operator = Operator(self.api, self.maker, self.loop)

    def _settle(self) -> None:
        """Disturbances are over: bounded rounds of calm work until nothing changes."""
        for _ in range(SETTLE_ROUNDS):
            before = self.api.revision
            self.api.collect_garbage(self.kind.resource, self.children)
            for key in sorted(self.api.objects.get(POD, {})):
                self._report(key, "gone") if "deletionTimestamp" in self.api.objects[POD][key]["metadata"] else None
            self.loop.virtual += 10
            self.operator.catch_up()
            plans = [self.operator.plan(key) for key in KEYS]
            for key in KEYS:
                self._pass(key, None)
            timers = [plan.requeue_after for plan in plans if plan.requeue_after is not None]
            if all(plan.is_quiet for plan in plans) and self.api.revision == before and not timers:
                return
            self.loop.virtual += max(timers, default=0)
        raise LawBroken("settles: still at work after the disturbances stopped")

    def _check_settled(self, key: Key, job: Object) -> None:
        self.operator.catch_up()
        if not self.operator.plan(key).is_quiet:
            raise LawBroken("quiet: a settled job has something to do")
        uid, phase = job["metadata"]["uid"], job["status"]["phase"]
        pods = self.api.owned_by(uid, POD)
        services = {k.name for k in self.api.owned_by(uid, SERVICE)}
        if phase not in ENDED and self.maker.is_stopped(job):
            if alive := [p for p in pods.values() if p["status"]["phase"] in ("Pending", "Running")]:
                raise LawBroken(f"settles: a job that was told to stop has {len(alive)} pods that run")
            return
        if phase not in ENDED:
            wanted = self.maker.children(key, job["spec"])
            if {k.name for k in pods} | _done(key, job) != wanted or services != self.maker.services(key, job["spec"]):
                raise LawBroken(f"settles: {sorted(wanted)} wanted, pods {sorted(pods)}, services {services}")
            return
        if stored_ports(job):
            raise LawBroken(f"settles: an ended job has ports: {stored_ports(job)}")
        alive = [p for p in pods.values() if p["status"]["phase"] in ("Pending", "Running")]
        policy = self.maker.policy(job["spec"])
        if policy == "Running" and self.maker.keeps_services:
            services -= {key.name for key in pods}
        if (policy == "All" and (pods or services)) or (policy == "Running" and (alive or services)):
            raise LawBroken(f"settles: an ended job with cleanPodPolicy {policy} has {sorted(pods)} {services}")


def _done(key: Key, job: Object) -> set[str]:
    """The names of those who have succeeded, by the job's own account: they may be gone."""
    status = job["status"]
    attempt = f"{status['runtimeId']}-" if "runtimeId" in status else ""
    places = ((role.lower(), index) for role, indices in status.get("done", {}).items() for index in indices)
    return {f"{key.name}-{role}-{attempt}{index}" for role, index in places}


def _is_ready(status: Object) -> bool:
    return any((c["type"], c["status"]) == ("Ready", "True") for c in status.get("conditions", ()))


def _has_ended(job: Object) -> bool:
    return job.get("status", {}).get("phase") in ENDED


class RelatedMachine(JobMachine):
    """Beside their jobs, users also come and go with the object that these are planned with."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            self.relate(data)
        super().begin(data)

    @rule(data=st.data())
    def relate(self, data: st.DataObject) -> None:
        """Creates the object, or gives it a new spec."""
        related, made = self.kind.related, self.maker.related
        assert related is not None
        assert made is not None
        resource, key = related
        spec = data.draw(made)
        if key in self.api.objects.get(resource, {}):
            self.api.edit(resource, key, spec)
        else:
            body = msgspec.json.encode({"metadata": {"name": key.name}, "spec": spec})
            self.loop.run_until_complete(self.api.create(resource, key.namespace, body))

    @rule()
    def unrelate(self) -> None:
        assert self.kind.related is not None
        resource, key = self.kind.related
        if key in self.api.objects.get(resource, {}):
            self.api.remove(resource, key)

    def _check_settled(self, key: Key, job: Object) -> None:
        """A job that never saw the object waits without pods, and is quiet. One that knows where its aggregator listens
        keeps its other pods."""
        conditions = {entry["type"]: entry["status"] for entry in job["status"].get("conditions", ())}
        if conditions.get("PodCreateFailed") != "True":
            super()._check_settled(key, job)
            return
        is_known = "aggregator" in job["status"].get("declared", {})
        has_pods = bool(self.api.owned_by(job["metadata"]["uid"], POD))
        if (has_pods and not is_known) or not self.operator.plan(key).is_quiet:
            raise LawBroken("settles: a job that waits for its AggregatorConfig has pods, or something to do")


class NodeMachine(JobMachine):
    """Its nodes are lost and come back, and cannot create every container. On a lost one no kubelet says anything."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = (*self.resources, NODE)
        self.away: set[str] = set()
        for name in NODES:
            self._add_node(name)

    @rule(number=pick, how=st.sampled_from(["not ready", "out of service", "deleted"]))
    def lose_node(self, number: int, how: str) -> None:
        if number < 4:  # rarely: most jobs do not survive it
            self._lose(NODES[number % 2], how)

    @rule(number=pick)
    def bring_node_back(self, number: int) -> None:
        self._bring_back(NODES[number % 2])

    @rule()
    def use_nodes_before_the_watch_tells_that_they_are_back(self) -> None:
        for name in NODES:
            self._lose(name, "not ready")
        self.loop.virtual += 600
        self.operator.catch_up()
        for name in NODES:
            self._bring_back(name)
        self.report_all_pods("bound")
        self.operator.deliver(POD, 1_000_000)
        for key in KEYS:
            self._pass(key, None)

    def _lose(self, name: str, how: str) -> None:
        if name in self.away:
            return
        self.away.add(name)
        for pod in self.api.objects.get(POD, {}).values():
            if pod["spec"].get("nodeName") == name and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                self.api.doomed.add(pod["metadata"]["uid"])
                self._blame(pod)
        match how:
            case "not ready":
                self._say_ready(name, "Unknown")
            case "out of service":
                self.api.edit(NODE, Key("", name), {"taints": [{"key": "node.kubernetes.io/out-of-service"}]})
            case "deleted":
                self.api.remove(NODE, Key("", name))

    def _bring_back(self, name: str) -> None:
        if name not in self.away:
            return
        self.away.discard(name)
        if Key("", name) in self.api.objects[NODE]:
            self.api.edit(NODE, Key("", name), {})
            self._say_ready(name, "True")
        else:
            self._add_node(name)

    @rule(number=pick, reason=st.sampled_from(["ErrImagePull", "CreateContainerConfigError", "ContainerCreating"]))
    def refuse_container(self, number: int, reason: str) -> None:
        keys = [
            key for key, pod in sorted(self.api.objects.get(POD, {}).items()) if pod["status"]["phase"] == "Pending"
        ]
        if not keys or self._is_away(pod := self.api.objects[POD][keys[number % len(keys)]]):
            return
        if pod["spec"].get("nodeName"):
            waiting = {"name": pod["spec"]["containers"][0]["name"], "state": {"waiting": {"reason": reason}}}
            self.api.set_status(POD, keys[number % len(keys)], {"containerStatuses": [waiting]})
            self._blame(pod)

    def _blame(self, pod: Object) -> None:
        """It has a fault now that may be counted, once."""
        self.failures.setdefault(owner_uid(pod), set()).add(pod["metadata"]["uid"])

    def _add_node(self, name: str) -> None:
        body = msgspec.json.encode({"metadata": {"name": name}, "spec": {}})
        self.loop.run_until_complete(self.api.create(NODE, "", body))
        self._say_ready(name, "True")

    def _say_ready(self, name: str, status: str) -> None:
        since = self.operator.now().isoformat()
        ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
        self.api.set_status(NODE, Key("", name), {"conditions": [ready]})

    def _is_away(self, pod: Object) -> bool:
        return pod["spec"].get("nodeName") in self.away

    def _bind(self, key: Key) -> None:
        if there := [name for name in NODES if name not in self.away]:
            self.api.bind(key, there[sum(key.name.encode()) % len(there)])

    def _report(self, key: Key, to: str) -> None:
        pod = self.api.objects[POD][key]
        if not self._is_away(pod):
            super()._report(key, to)
        elif to == "gone" and not self._is_owned(pod):
            self.api.remove(POD, key)  # Kubernetes itself collects what belongs to nobody

    def _is_owned(self, pod: Object) -> bool:
        """By a job, or by a batch Job."""
        owners = [*self._jobs(), *self.api.objects.get(JOB, {}).values()]
        return owner_uid(pod) in {owner["metadata"]["uid"] for owner in owners}


class RankMachine(JobMachine):
    """Its pods find each other by rank."""

    def __init__(self) -> None:
        super().__init__()
        self.counters: dict[str, tuple[int, int]] = {}

    @invariant()
    def a_rank_belongs_to_one_pod_and_is_on_record(self) -> None:
        for job in self._jobs():
            pods = [pod for pod in self.api.owned_by(job["metadata"]["uid"], POD).values() if _is_going_on(pod)]
            found = [int(pod["metadata"]["annotations"]["diengine/rank"]) for pod in pods]
            if len(found) != len(set(found)):
                raise LawBroken(f"two pods have one rank: {sorted(found)}")

    @invariant()
    def a_pod_finds_its_own_address_by_its_rank(self) -> None:
        for key, pod in self.api.objects.get(POD, {}).items():
            env = {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}
            own = dict(enumerate(env["DI_NODES"].split(","))).get(int(env["DI_RANK"]), "no address")
            if not own.startswith(f"{key.name}."):
                raise LawBroken(f"{key.name} of rank {env['DI_RANK']} would listen at {own}: {env['DI_NODES']}")

    @invariant()
    def restarts_and_reschedules_are_never_taken_back(self) -> None:
        for job in self._jobs():
            uid, status = job["metadata"]["uid"], job.get("status", {})
            counted = status.get("restarts", 0), status.get("reschedules", 0)
            if any(now < before for now, before in zip(counted, self.counters.get(uid, (0, 0)), strict=True)):
                raise LawBroken(f"monotone: restarts and reschedules were {self.counters[uid]}, now {counted}")
            self.counters[uid] = counted
            if counted[0] > len(self.failures.get(uid, ())):
                raise LawBroken(f"monotone: {counted[0]} restarts, but {len(self.failures.get(uid, ()))} failures")


def _is_going_on(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] not in ("Succeeded", "Failed")


class BatchMachine(JobMachine):
    """Its pods are those of batch Jobs, which Kubernetes makes, counts and gives up."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: dict[str, set[str]] = {}
        """The runtime ids of all batch Jobs that there were, by the uid of their owner."""
        self._changes_read = 0
        self.crews: dict[tuple[str, str], set[str]] = {}
        """The uids of the batch Jobs of which every attempt was whole, by owner and runtime id."""

    @rule()
    def control_jobs(self) -> None:
        self.loop.run_until_complete(control_jobs(self.api))

    @rule(number=pick)
    def delete_batch_job(self, number: int) -> None:
        if keys := sorted(self.api.objects.get(JOB, {})):
            self.api.remove(JOB, keys[number % len(keys)])

    @rule(number=pick, pods_first=st.booleans())
    def lose_somebody(self, number: int, pods_first: bool) -> None:
        """Of jobs all of whose replicas run: few histories come to that by themselves."""
        for _ in range(2):
            self.make_progress("Running")
        self.delete_batch_job(number)
        if pods_first:  # the watch of Jobs is behind
            self.collect_garbage()
            self.operator.deliver(POD, 1_000_000)
            for key in KEYS:
                self._pass(key, None)
        self.operator.catch_up()

    @rule(to=st.sampled_from(["Running", "Succeeded", "Failed"]))
    def make_progress(self, to: str) -> None:
        for step in ("bound", "Running", to):
            self.control_jobs()
            for _ in range(3):
                self.operator.catch_up()
                for key in KEYS:
                    self._pass(key, None)
            self.report_all_pods(step)

    @invariant()
    def a_failure_is_counted_once(self) -> None:
        """Every attempt that a restart ended had batch Jobs, of names of its own: none is counted that never was."""
        self._read_changes()
        for job in self._jobs():
            uid, restarts = job["metadata"]["uid"], job.get("status", {}).get("restarts", {})
            used = sum(of_role.get("used", 0) for of_role in restarts.values())
            if used > len(self.attempts.get(uid, ())):
                raise LawBroken(f"monotone: {used} restarts, but Jobs of {sorted(self.attempts.get(uid, ()))}")

    def _read_changes(self) -> None:
        """From the watch stream: a Job that one rule creates and deletes is not among the objects afterwards."""
        changes = self.api.streams.get(JOB, [])
        for change in changes[self._changes_read :]:
            body = msgspec.json.decode(change.body)
            self.attempts.setdefault(owner_uid(body), set()).add(body["metadata"]["labels"]["runtime_id"])
        self._changes_read = len(changes)

    @invariant()
    def nobody_joins_a_crew_that_was_whole(self) -> None:
        """ps-lite lets nobody join again who was lost: all of them come under another id, or nobody."""
        for job in self._jobs():
            uid, status = job["metadata"]["uid"], job.get("status", {})
            if job["metadata"]["generation"] > 1 or not (members := self._crew_of(job)):
                continue  # who comes alone may have been another one before an edit
            crew = self.crews.get((uid, status["runtimeId"]))
            if crew is not None and members - crew:
                raise LawBroken(f"settles: a Job came to the crew {status['runtimeId']} that had been whole without it")
            if crew is None and _is_ready(status):
                self.crews[uid, status["runtimeId"]] = members

    def _crew_of(self, job: Object) -> set[str]:
        """The uids of the batch Jobs of the present attempt that do not come again alone."""
        spec, id_ = job["spec"], job.get("status", {}).get("runtimeId")
        alone = {role["mxReplicaType"] for role in spec["replicaSpecs"] if role.get("restartScope") == "Pod"}
        return {
            body["metadata"]["uid"]
            for body in self.api.owned_by(job["metadata"]["uid"], JOB).values()
            if spec["jobMode"] == "dist"
            and body["metadata"]["labels"]["runtime_id"] == id_
            and body["metadata"]["labels"]["job_type"] not in alone
        }

    @invariant()
    def a_state_once_judged_is_the_end_that_comes(self) -> None:
        for job in self._jobs():
            uid, status = job["metadata"]["uid"], job.get("status", {})
            if status.get("phase") in ("CleanUp", "Done"):
                first = self.verdicts.setdefault(f"state of {uid}", status["state"])
                if status["state"] != first:
                    raise LawBroken(f"monotone: {first} was the verdict, now {status['state']}")

    def _settle(self) -> None:
        for _ in range(SETTLE_ROUNDS):
            before = self.api.revision
            self.control_jobs()
            super()._settle()
            if self.api.revision == before:
                return
        raise LawBroken("settles: still at work after the disturbances stopped")

    def _check_settled(self, key: Key, job: Object) -> None:
        self.operator.catch_up()
        if not self.operator.plan(key).is_quiet:
            raise LawBroken("quiet: a settled job has something to do")
        uid, phase = job["metadata"]["uid"], job["status"]["phase"]
        jobs = {k.name: body for k, body in self.api.owned_by(uid, JOB).items()}
        services = {k.name for k in self.api.owned_by(uid, SERVICE)}
        if phase not in ENDED and self.maker.is_stopped(job):
            if jobs or services:
                raise LawBroken(f"settles: a suspended job has {sorted(jobs)} {services}")
            return
        if phase not in ENDED:
            wanted = self.maker.names(key, job)
            addressed = {name for name in wanted if "-scheduler-" in name}
            if set(jobs) | _done(key, job) != wanted or services != addressed:
                raise LawBroken(f"settles: {sorted(wanted)} wanted, Jobs {sorted(jobs)}, services {services}")
            return
        if stored_ports(job):
            raise LawBroken(f"settles: an ended job has ports: {stored_ports(job)}")
        policy, going_on = self.maker.policy(job["spec"]), [name for name, body in jobs.items() if not is_over(body)]
        if (policy == "All" and (jobs or services)) or (policy == "Running" and (going_on or services)):
            raise LawBroken(f"settles: an ended job with cleanPodPolicy {policy} has {sorted(jobs)} {services}")


def machine_of(made: Maker) -> type[JobMachine]:
    base = RelatedMachine if made.related is not None else BatchMachine if made.has_batch_jobs else JobMachine
    others = () if base is JobMachine else (base,)
    others = (RankMachine,) if made.has_ranks else others
    bases = (NodeMachine, *others) if made.kind.looks_at_nodes else (base,)
    return type(f"{made.kind.__name__}Machine", bases, {"maker": made})


def hold(machine: type[JobMachine], few: int) -> None:
    """Hold it to the laws in its share of the histories that were asked for, or in a few for the quick gate."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=ASKED // MACHINES or few, stateful_step_count=STEPS, deadline=None, database=None
        ),
    )


def catch(machine: type[JobMachine]) -> None:
    """Some history breaks a law: there is a defect, and the laws have to find it."""
    with pytest.raises((LawBroken, ExceptionGroup)) as caught:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=5000,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                derandomize=True,  # the same histories everywhere: a defect that is found once is found again
                phases=[Phase.generate],  # finding is the point here; the smallest example is not
                suppress_health_check=list(HealthCheck),
            ),
        )

    assert caught.group_contains(LawBroken) if isinstance(caught.value, ExceptionGroup) else True
