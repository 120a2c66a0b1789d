"""The laws for jobs whose addresses are in a ConfigMap: in random histories it is there as long as pods need it."""

import pytest
from hypothesis.stateful import rule

from tests.laws.machine import JobMachine, hold, pick
from tests.laws.maker import AITrainingJobMaker, MXJobMaker
from tests.laws.memory import Object
from tests.laws.operator import LawBroken
from trainmaster.core.ids import CONFIG_MAP, POD, Key
from trainmaster.lifecycle import environment

LABEL = "trainmaster/environment"


class LargeMachine(JobMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lost: set[str] = set()
        """The ConfigMaps that somebody deleted. The values of an earlier scale are not known any more."""

    @rule(number=pick)
    def lose_config_map(self, number: int) -> None:
        if keys := sorted(self.api.objects.get(CONFIG_MAP, {})):
            key = keys[number % len(keys)]
            self.lost.add(key.name)
            self.api.remove(CONFIG_MAP, key)

    def _check_settled(self, key: Key, job: Object) -> None:
        super()._check_settled(key, job)
        uid = job["metadata"]["uid"]
        alive = [p for p in self.api.owned_by(uid, POD).values() if p["status"]["phase"] in ("Pending", "Running")]
        needed = {f"{key.name}-env-{pod['metadata']['labels'][LABEL]}" for pod in alive}
        there = {each.name for each in self.api.owned_by(uid, CONFIG_MAP)}
        if needed - there - self.lost:
            raise LawBroken(f"settles: pods need {needed}, there are {there}")
        if alive and there - needed:
            raise LawBroken(f"settles: no pod needs {there - needed}")


class LargeAITrainingJobMachine(LargeMachine):
    maker = AITrainingJobMaker()


class LargeMXJobMachine(LargeMachine):
    maker = MXJobMaker()


@pytest.fixture(autouse=True)
def _every_job_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MANY_REPLICAS", 0)
    monkeypatch.setattr(environment, "LONG_VALUE", 0)


@pytest.mark.parametrize("machine", [LargeAITrainingJobMachine, LargeMXJobMachine])
def test_the_laws_hold_for_jobs_whose_addresses_are_in_a_config_map(machine: type[JobMachine]) -> None:
    hold(machine, few=20)
