"""What becomes of a job: the values that the cells of the matrix hold, and how each of them is checked."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.build import Json
from tests.laws.memory import Object
from tests.matrix.kinds import Row, is_true
from tests.matrix.world import World
from trainmaster.core.ids import Key

NO_POD, VICTIM, SCOPE, ALL = "no pod", "the pod that the fault hit", "the restart scope of the job", "all pods"
"""Which pods are other ones afterwards. The restart scope is all pods, or that pod alone, by the row's contract."""

RECOVERY = 120
"""Seconds in which a job has to be running again: the grace period of a node, the restart, and some reserve."""
WAIT = 600
"""Seconds that an obstacle lasts: less than what any default lets a job fail after (--creating-duration-period)."""


NO_KEY = Key("", "")


class Unsaid(AssertionError):
    """All pods are as they should be, but neither condition nor Event says why."""


class Unfit(Exception):
    """The job did not even get to where the situation begins: no cell may count that as its own failure."""


@dataclass
class Case:
    """One cell that is being played."""

    row: Row
    world: World
    pods: dict[str, str] = field(default_factory=dict)
    """Names of the pods that ran before the situation, by uid."""
    services: set[str] = field(default_factory=set)
    victim: Key = NO_KEY
    node: str = ""
    heard: int = 0
    """Events before the situation."""
    recover: Callable[[], None] = lambda: None
    """Takes the obstacle away."""

    def start(self) -> None:
        """All pods run."""
        self.world.create()
        self.world.run(60)
        if len(self.world.running) != self.row.size or not self.row.is_running(self.world.job):
            raise Unfit(f"the job does not run: {self.world.running} {self.world.job.get('status')}")
        self.remember()

    def remember(self) -> None:
        self.find()
        self.victim = self.row.victim_of(self.world)
        self.node = self.world.pods[self.victim]["spec"]["nodeName"]

    def find(self) -> None:
        """What is there before the situation, whoever created it."""
        self.pods, self.services = self.world.running, self.world.services
        self.heard = len(self.world.notes.events)

    @property
    def job(self) -> Json:
        return self.world.job

    @property
    def victim_pod(self) -> Object:
        return self.world.pods[self.victim]

    @property
    def status_texts(self) -> list[str]:
        status = self.job.get("status", {})
        texts = [f"{c.get('reason', '')}: {c.get('message', '')}" for c in status.get("conditions", ())]
        return [*texts, str(status.get("reason", "")), str(status.get("message", ""))]

    @property
    def event_texts(self) -> list[str]:
        return [f"{event.reason}: {event.message}" for event in self.world.notes.events[self.heard :]]

    def must_say(self, pattern: str, texts: list[str], where: str) -> None:
        filled = pattern.replace("{pod}", re.escape(self.victim.name)).replace("{node}", re.escape(self.node))
        if not any(re.search(filled, text) for text in texts):
            raise Unsaid(f"no {where} says {filled!r}: {texts}")

    def must_go_on(self) -> None:
        assert not self.world.is_gone, "the job is gone"
        assert not self.row.result(self.job), f"the job has ended: {self.job['status']}"

    def must_run(self, number: int) -> None:
        self.must_go_on()
        assert self.row.is_running(self.job), f"the job does not run: {self.job.get('status')}"
        assert len(self.world.running) == number, f"{number} pods wanted: {self.world.running}"

    def must_count(self, number: int | None) -> None:
        if number is not None and self.row.counted is not None:
            counted = self.row.counted(self.job)
            assert counted == number, f"{counted} restarts are counted, not {number}"

    def must_have_ended(self, result: str) -> None:
        assert not self.world.is_gone, "the job is gone"
        assert self.row.result(self.job) == result, f"not {result}: {self.job.get('status')}"


class Outcome(Protocol):
    def check(self, case: Case) -> None: ...


@dataclass(frozen=True)
class GoesOn:
    """The job runs, with as many pods as before and ``pods`` more. ``counted`` None: the contract leaves it open.
    ``event`` is found in one Event; {pod} and {node} stand for those that the fault hit. ``is_no_restart``:
    `kubectl get` shows no restart."""

    restarted: str
    counted: int | None = 0
    event: str = ""
    pods: int = 0
    is_no_restart: bool = False

    def check(self, case: Case) -> None:
        case.world.run(RECOVERY)
        case.must_run(len(case.pods) + self.pods)
        self._check_pods(case)
        if self.pods >= 0:
            more = 0 if case.row.has_one_service else self.pods
            assert len(case.world.services) == len(case.services) + more, case.world.services
        case.must_count(self.counted)
        if self.is_no_restart:
            assert case.job["status"]["summary"]["restarts"] == 0, case.job["status"]
        if self.event:
            case.must_say(self.event, case.event_texts, "Event")

    def _check_pods(self, case: Case) -> None:
        kept = {name for uid, name in case.pods.items() if uid in case.world.running}
        before = set(case.pods.values())
        restarted = self.restarted if self.restarted != SCOPE else ALL if case.row.restarts_all else VICTIM
        if self.pods < 0:
            assert len(kept) == len(before) + self.pods == len(case.world.running), case.world.running
        else:
            wanted = {NO_POD: before, VICTIM: before - {case.victim.name}, ALL: set()}[restarted]
            assert kept == wanted, f"{restarted} should be new, and these are: {sorted(before - kept)}"


@dataclass(frozen=True)
class Waits:
    """The job does not end, no pod restarts, and both its status and an Event say why. When the obstacle is gone, all
    pods run and nothing was counted."""

    says: str

    def check(self, case: Case) -> None:
        case.world.run(WAIT)
        case.must_go_on()
        kept = {uid for uid in case.pods if uid in case.world.running}
        assert kept == set(case.pods), f"restarted: {[case.pods[uid] for uid in set(case.pods) - kept]}"
        conditions, events = case.status_texts, case.event_texts
        case.recover()
        case.world.run(RECOVERY)
        case.must_run(case.row.size)
        assert set(case.pods) <= set(case.world.running), "restarted after the obstacle was gone"
        case.must_count(0)
        case.must_say(self.says, conditions, "condition")
        case.must_say(self.says, events, "Event")


@dataclass(frozen=True)
class Fails:
    """``stops``: no pod runs on, under whatever clean-up policy."""

    says: str
    stops: bool = False

    def check(self, case: Case) -> None:
        case.world.run(WAIT)
        case.must_have_ended("Failed")
        assert is_true(case.job, "Finished"), "kubectl wait --for=condition=Finished would wait for ever"
        assert set(case.world.running) <= set(case.pods), "a pod was created for a job that has failed"
        assert not (self.stops and case.world.running), f"still running: {case.world.running}"
        case.must_say(self.says, case.status_texts, "condition")


@dataclass(frozen=True)
class Remembers:
    """The job fails, all of its pods are deleted, and its status says which replica failed first, and how. Conditions
    and an Event say it, too."""

    code: int
    signal: str
    line: str

    def check(self, case: Case) -> None:
        case.world.run(WAIT)
        case.must_have_ended("Failed")
        assert not case.world.pods, f"not deleted: {sorted(case.world.pods)}"
        failure = case.job["status"].get("failure", {})
        found = (failure.get("exitCode"), failure.get("signal"), failure.get("pod"), failure.get("node"))
        assert found == (self.code, self.signal, case.victim.name, case.node), failure
        assert failure["replica"].startswith(failure["role"].lower()), failure
        assert failure["output"][-1] == self.line, failure
        assert len("\n".join(failure["output"]).encode()) <= 1024
        how = rf"{failure['replica']} \(pod {{pod}}, node {{node}}\) was killed by {self.signal} \({self.code}\)"
        case.must_say(f"{how}: {self.line}", case.status_texts, "condition")
        case.must_say(f"(?s)(?=.*{{pod}})(?=.*{{node}})(?=.*{self.signal}).*{self.line}", case.event_texts, "Event")


@dataclass(frozen=True)
class Succeeds:
    """``before_us``: another operator ended the job, and what it wrote stays."""

    before_us: bool = False

    def check(self, case: Case) -> None:
        case.world.run(RECOVERY)
        case.must_have_ended("Succeeded")
        assert set(case.world.running) <= set(case.pods), "a pod was created for a job that has succeeded"
        assert self.before_us or is_true(case.job, "Finished")


@dataclass(frozen=True)
class Suspended:
    """No pod is there, and the conditions say so."""

    conditions: tuple[str, ...] = ("Suspended",)

    def check(self, case: Case) -> None:
        case.world.run(RECOVERY)
        case.must_go_on()
        assert not case.world.pods, f"a suspended job has pods: {sorted(case.world.pods)}"
        for condition in self.conditions:
            assert is_true(case.job, condition), f"the condition {condition} is not True: {case.job.get('status')}"
        case.must_say("(?i)suspend", case.event_texts, "Event")


@dataclass(frozen=True)
class Gone:
    """The job and all that it owned."""

    def check(self, case: Case) -> None:
        case.world.run(RECOVERY)
        assert case.world.is_gone, f"the job is there: {case.job.get('status')}"
        left = {*case.world.pods, *case.world.services}
        assert not left, f"left behind: {left}"
