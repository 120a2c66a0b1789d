"""DIJob with replicas that di-server declares: the same laws, while clients ask for more, for fewer, and for others."""

from collections.abc import Mapping
from itertools import count

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.laws.machine import KEYS, NodeMachine, hold
from tests.laws.maker import RESTARTS, Maker
from tests.laws.memory import MemoryApi, Object
from tests.laws.operator import ENDED, LawBroken
from trainmaster.core.ids import POD, Key
from trainmaster.core.plan import merge_patch
from trainmaster.kinds.dijob import declare
from trainmaster.kinds.dijob.declaration import Aggregator, Declared, Role
from trainmaster.kinds.dijob.declare import Asked
from trainmaster.kinds.dijob.kind import DIJobKind

TEMPLATE = {"spec": {"containers": [{"name": "di-container", "image": "x"}], "restartPolicy": "Never"}}
GROUP = Asked(1, gpus=3, shares=(2, 1))


class DeclaredMaker(Maker):
    """Its oracle reads what is declared from the API server itself."""

    kind = DIJobKind
    misses_pods = True
    api: MemoryApi

    def specs(self) -> st.SearchStrategy[Object]:
        role = {"template": TEMPLATE}
        return st.fixed_dictionaries(
            {"coordinator": st.just(role), "collector": st.just(role), "learner": st.just(role)},
            optional={"cleanPodPolicy": st.sampled_from(["All", "Running", "None"]), "runPolicy": RESTARTS},
        )

    def children(self, key: Key, spec: Object) -> set[str]:
        return {f"{key.name}-coordinator", *declared_of(self.api.objects[DIJobKind.resource][key]).members}

    def policy(self, spec: Object) -> str:
        return str(spec.get("cleanPodPolicy", "Running"))


class DeclaredMachine(NodeMachine):
    maker = DeclaredMaker()

    def __init__(self) -> None:
        super().__init__()
        self.maker.api = self.api
        self._numbers = count(1)
        assert self.kind.related is not None
        resource, key = self.kind.related
        config = {"metadata": {"name": key.name}, "spec": {"aggregator": {"template": TEMPLATE}}}
        self.loop.run_until_complete(self.api.create(resource, key.namespace, msgspec.json.encode(config)))

    @rule(
        key=st.sampled_from(KEYS), collectors=st.integers(0, 2), learners=st.sampled_from([Asked(0), Asked(1), GROUP])
    )
    def ask_for_more(self, key: Key, collectors: int, learners: Asked) -> None:
        asked: Mapping[Role, Asked] = {"collector": Asked(collectors), "learner": learners}
        suffixes = declare.derived_suffixes(str(next(self._numbers)))
        if (declared := self._open(key)) is not None:
            change = declare.requested(
                declared, asked, job=key.name, incarnation="", suffixes=suffixes, now=self.operator.now()
            )
            self._declare(key, declared, msgspec.structs.replace(change.declared, aggregator=Aggregator(22272)))

    @rule(key=st.sampled_from(KEYS), collectors=st.integers(0, 2), learners=st.integers(0, 2))
    def ask_for_fewer(self, key: Key, collectors: int, learners: int) -> None:
        if (declared := self._open(key)) is not None:
            change = declare.removed(declared, {"collector": collectors, "learner": learners}, {})
            self._declare(key, declared, change.declared)

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 7))
    def report_a_failure(self, key: Key, number: int) -> None:
        declared = self._open(key)
        if declared is not None and declared.members:
            name = sorted(declared.members)[number % len(declared.members)]
            suffixes = declare.derived_suffixes(str(next(self._numbers)))
            change = declare.failed(declared, [name], suffixes=suffixes, now=self.operator.now())
            self._declare(key, declared, change.declared)

    @rule(change=st.sampled_from(["more", "fewer", "others"]), number=st.integers(0, 7))
    def change_in_a_calm_moment(self, change: str, number: int) -> None:
        """Without some of these a history never has replicas for long enough to lose them."""
        for key in KEYS:
            match change:
                case "more":
                    self.ask_for_more(key, 1 + number % 2, GROUP if number % 4 == 0 else Asked(number % 2))
                case "fewer":
                    self.ask_for_fewer(key, number % 2, number % 3)
                case "others":
                    self.report_a_failure(key, number)
        for _ in range(4):
            self.operator.catch_up()
            for key in KEYS:
                self._pass(key, None)

    @invariant()
    def a_slot_is_filled_at_most_once(self) -> None:
        """By construction here, because a replica is its name; instead no pod has two replicas' labels."""
        for key, pod in self.api.objects.get(POD, {}).items():
            if pod["metadata"]["labels"]["pod-name"] != key.name:
                raise LawBroken(f"{key.name} says that it is {pod['metadata']['labels']['pod-name']}")

    @invariant()
    def a_group_is_whole(self) -> None:
        for job in self._jobs():
            members = declared_of(job).members
            for name, member in members.items():
                if member.aggregator and member.aggregator not in members:
                    raise LawBroken(f"{name} has lost its aggregator {member.aggregator}")
                if member.role == "aggregator" and len(declare.group_of(members, name)) != len(GROUP.shares):
                    raise LawBroken(f"{name} has lost a learner")

    def _settle(self) -> None:
        """Whoever waits after a failure has to be waited for."""
        for _ in range(3):
            super()._settle()
            self.loop.virtual += 100

    def _open(self, key: Key) -> Declared | None:
        """What is declared of a job that takes requests."""
        job = self.api.objects.get(self.kind.resource, {}).get(key)
        if job is None or job.get("status", {}).get("phase") in ENDED:
            return None
        return declared_of(job)

    def _declare(self, key: Key, old: Declared, new: Declared) -> None:
        patch = merge_patch(msgspec.to_builtins(old), msgspec.to_builtins(new))
        if patch:
            self.api.set_status(self.kind.resource, key, {"declared": patch})


def declared_of(job: Object) -> Declared:
    return msgspec.convert(job.get("status", {}).get("declared", {}), Declared)


def test_the_laws_hold_while_replicas_are_declared() -> None:
    hold(DeclaredMachine, few=60)
