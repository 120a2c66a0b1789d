"""Elastic AITrainingJobs: the same laws, while they are scaled again and again and lose pods with their nodes; and what
their pods read about who takes part is true in the end, and never goes back."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.laws.machine import KEYS, JobMachine, catch, hold, pick
from tests.laws.maker import AITrainingJobMaker
from tests.laws.memory import Object, owner_uid
from tests.laws.operator import ENDED, LawBroken
from trainmaster.core.ids import CONFIG_MAP, POD, Key
from trainmaster.kinds.aitrainingjob import elastic, membership
from trainmaster.kinds.aitrainingjob import kind as aitj
from trainmaster.kinds.aitrainingjob.membership import next_step
from trainmaster.kinds.aitrainingjob.types import MembershipRecord
from trainmaster.lifecycle.decide import Extra

MOST = 3


class ElasticMaker(AITrainingJobMaker):
    def specs(self) -> st.SearchStrategy[Object]:
        return st.tuples(
            super().specs(),
            st.sampled_from(["Auto", "Auto", "Manual"]),
            st.sampled_from(["Auto", "Manual", "Never", "Never"]),
            st.none() | st.integers(1, MOST),
        ).map(lambda drawn: _elastic(*drawn))

    def children(self, key: Key, spec: Object) -> set[str]:
        specs = spec["replicaSpecs"]
        return {f"{key.name}-{role}-{index}" for role in specs for index in range(_wanted(spec, specs[role]))}


def _elastic(spec: Object, first: str, second: str, scale: int | None) -> Object:
    """The spec with an elastic role or two, and with a scale where that is clear."""
    roles = {
        role: {**given, "edlPolicy": policy, "minReplicas": 1, "maxReplicas": MOST}
        for (role, given), policy in zip(sorted(spec["replicaSpecs"].items()), (first, second), strict=False)
    }
    made = {**spec, "replicaSpecs": roles}
    return made if scale is None or not _is_clear(made) else {**made, "elasticReplicas": scale}


def _is_clear(spec: Object) -> bool:
    policies = [given["edlPolicy"] for given in spec["replicaSpecs"].values()]
    return len(policies) - policies.count("Never") == 1


def _wanted(spec: Object, given: Object) -> int:
    if given["edlPolicy"] == "Never":
        return int(given["replicas"])
    if "elasticReplicas" in spec:
        return int(spec["elasticReplicas"])
    return MOST if given["edlPolicy"] == "Auto" else int(given["replicas"])


class ElasticMachine(JobMachine):
    maker = ElasticMaker()

    def __init__(self) -> None:
        super().__init__()
        self.memberships: dict[str, tuple[int, list[Object]]] = {}

    # --- a storm ---

    @rule(key=st.sampled_from(KEYS), sizes=st.lists(st.integers(1, MOST), min_size=1, max_size=5), calm=st.booleans())
    def scale(self, key: Key, sizes: list[int], calm: bool) -> None:
        """Somebody scales a job, and changes his mind, with or without a pass in between."""
        for size in sizes:
            job = self.api.objects.get(self.kind.resource, {}).get(key)
            if job is None or not _is_clear(job["spec"]):
                return
            self.api.edit(self.kind.resource, key, {**job["spec"], "elasticReplicas": size})
            if calm:
                self.operator.catch_up()
            self._pass(key, None)

    @rule(number=pick)
    def lose_pod(self, number: int) -> None:
        """With its node."""
        keys = [k for k, pod in sorted(self.api.objects.get(POD, {}).items()) if pod["status"]["phase"] == "Running"]
        if keys:
            key = keys[number % len(keys)]
            pod = self.api.objects[POD][key]
            self.failures.setdefault(owner_uid(pod), set()).add(pod["metadata"]["uid"])
            self.api.set_status(POD, key, {"phase": "Failed", "reason": "NodeLost", "containerStatuses": []})

    @rule(number=pick, way=st.sampled_from(["", "", "delete", "spoil"]))
    def lose_pod_of_a_running_job(self, number: int, way: str) -> None:
        """Without some of these a history never has a job that runs for long enough to lose something."""
        self.make_progress("Running")
        for _ in range(2):
            self.operator.catch_up()
            for key in KEYS:
                self._pass(key, None)
        self.harm_file(number, way) if way else self.lose_pod(number)
        self.operator.catch_up()
        self._pass(KEYS[number % 2], None)

    @rule(number=pick, way=st.sampled_from(["delete", "spoil"]))
    def harm_file(self, number: int, way: str) -> None:
        files = sorted(self.api.objects.get(CONFIG_MAP, {}))
        if files:
            key = files[number % len(files)]
            if way == "delete":
                self.api.remove(CONFIG_MAP, key)
            else:
                body = msgspec.json.encode({"data": {"members.json": "spoilt"}})
                self.loop.run_until_complete(self.api.patch(CONFIG_MAP, key, body))

    # --- the laws ---

    @invariant()
    def the_generation_grows_with_every_change_of_the_members(self) -> None:
        for body in self.api.objects.get(CONFIG_MAP, {}).values():
            text = body["data"]["members.json"]
            if text == "spoilt":
                continue
            found = json.loads(text)
            uid, new = owner_uid(body), (found["generation"], found["members"])
            old = self.memberships.setdefault(uid, new)
            if new[0] < old[0] or (new[0] == old[0] and new[1] != old[1]):
                raise LawBroken(f"monotone: membership {old} became {new}")
            self.memberships[uid] = new

    def _check_settled(self, key: Key, job: Object) -> None:
        super()._check_settled(key, job)
        uid, phase = job["metadata"]["uid"], job["status"]["phase"]
        files = list(self.api.owned_by(uid, CONFIG_MAP).values())
        if phase in ENDED:
            if files and self.maker.policy(job["spec"]) != "None":
                raise LawBroken("settles: an ended job has a membership")
        elif not self.maker.is_stopped(job):
            pods = self.api.owned_by(uid, POD)
            running = {k.name for k, pod in pods.items() if pod["status"]["phase"] == "Running"}
            told = files[0]["data"]["members.json"]
            members = {member["name"] for member in json.loads(told)["members"]} if told != "spoilt" else {told}
            if members != running:
                raise LawBroken(f"settles: {sorted(running)} run, and {sorted(members)} are told to take part")


def test_the_laws_hold_while_jobs_are_scaled_and_lose_their_nodes() -> None:
    hold(ElasticMachine, few=40)


# --- defects that were put in on purpose ---


def _the_generation_stays(patch: pytest.MonkeyPatch) -> None:
    def record(**given: Any) -> MembershipRecord:
        return MembershipRecord(**{**given, "generation": 1})

    patch.setattr(membership, "MembershipRecord", record)


def _the_generation_is_not_on_record(patch: pytest.MonkeyPatch) -> None:
    def step(job: Any, *rest: Any) -> Extra:
        found = next_step(job, *rest)
        if not found.is_new:
            return found
        status = msgspec.structs.replace(job.status, membership=found.record)
        written = next_step(msgspec.structs.replace(job, status=status), *rest)
        return msgspec.structs.replace(written, record=job.status.membership)

    patch.setattr(aitj, "next_step", step)


def _pods_that_wait_take_part(patch: pytest.MonkeyPatch) -> None:
    def members(facts: Any, builder: Any) -> tuple[membership.Member, ...]:
        return tuple(
            membership.Member(pod.key.name, role.lower(), index, "", (), 0) for (role, index), pod in facts.pods.items()
        )

    patch.setattr(membership, "_members", members)


def _a_spoilt_file_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(aitj, "next_step", lambda *given: msgspec.structs.replace(next_step(*given), patches=()))


def _the_scale_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elastic, "sized", lambda job: job)


@pytest.mark.parametrize(
    "put_in",
    [
        _the_generation_stays,
        _the_generation_is_not_on_record,
        _pods_that_wait_take_part,
        _a_spoilt_file_stays,
        _the_scale_is_not_looked_at,
    ],
    ids=lambda put_in: put_in.__name__.strip("_"),
)
def test_the_laws_catch(put_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch)

    catch(ElasticMachine)
