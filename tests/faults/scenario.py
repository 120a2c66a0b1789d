"""One fault at one call of one job's life: what it is, and what became of the job."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from testbed.admin import Admin
from testbed.proxy import Call, Fault, FaultProxy, Rule
from tests.faults.life import Life, Subject, timeless
from tests.faults.world import Object, World

AT_ONCE = 48

VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


class Step(NamedTuple):
    """One call of a job's life, by what it is about: calls of one batch arrive in any order."""

    method: str
    resource: str
    name: str = "job"
    subresource: str = ""
    nth: int = 1

    def __str__(self) -> str:
        if self.subresource:
            return f"{self.subresource}-{self.nth}"
        return f"{VERBS[self.method]}-{self.resource}-{self.name.removeprefix('job-')}"


def steps_of(calls: Sequence[Call]) -> list[Step]:
    """The calls as steps."""
    steps: list[Step] = []
    for call in calls:
        step = Step(call.method, call.resource, call.name, call.subresource)
        nth = 1 + sum(step == other._replace(nth=1) for other in steps)
        steps.append(step._replace(nth=nth))
    return steps


class Trouble(NamedTuple):
    """A fault at a step, or at this and all later ones like it."""

    step: Step
    fault: Fault
    lasts: bool = False


@dataclass(frozen=True)
class Scenario:
    """A job of this kind, and the troubles that it meets. The id is its namespace, too."""

    subject: Subject
    words: str
    troubles: Sequence[Trouble] = ()

    @property
    def id(self) -> str:
        return f"{self.subject.word}-{self.words}"


@dataclass
class Outcome:
    """What became of a job."""

    error: str = "it was not run"
    status: Object = field(default_factory=dict)
    incarnations: dict[str, dict[str, int]] = field(default_factory=dict)
    once_each: dict[str, dict[str, int]] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)

    @property
    def missed(self) -> list[str]:
        """Troubles that met no call: such a scenario proves nothing."""
        return [str(rule) for rule in self.rules if not rule.hit]

    def __str__(self) -> str:
        return "\n".join([self.error, *(f"  {call}" for call in self.calls)])


async def run(scenario: Scenario, admin: Admin, world: World, proxy: FaultProxy) -> Outcome:
    """One job through all of its life. Raises nothing: the other jobs must go on."""
    namespace = scenario.id
    await admin.create("namespaces", {"metadata": {"name": namespace}})
    life = Life(scenario.subject, namespace, admin, world)
    outcome = Outcome(error="", rules=[_inject(proxy, namespace, trouble) for trouble in scenario.troubles])
    try:
        await life.live()
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {error}"
    outcome.status = timeless(life.status)
    outcome.incarnations = life.incarnations
    outcome.once_each = life.once_each
    outcome.leftovers = life.leftovers
    outcome.calls = [call for call in list(proxy.calls) if call.namespace == namespace]
    return outcome


async def run_all(scenarios: Sequence[Scenario], admin: Admin, world: World, proxy: FaultProxy) -> dict[str, Outcome]:
    """All of them, so many at a time that the operator always has enough to do and no request waits for long."""
    room = asyncio.Semaphore(AT_ONCE)

    async def run_one(scenario: Scenario) -> Outcome:
        async with room:
            return await run(scenario, admin, world, proxy)

    async with asyncio.TaskGroup() as group:
        tasks = {scenario.id: group.create_task(run_one(scenario)) for scenario in scenarios}
    return {name: task.result() for name, task in tasks.items()}


def _inject(proxy: FaultProxy, namespace: str, trouble: Trouble) -> Rule:
    step = trouble.step
    return proxy.inject(
        trouble.fault,
        namespace=namespace,
        method=step.method,
        resource=step.resource,
        name=step.name or None,
        subresource=step.subresource,
        first=step.nth,
        count=None if trouble.lasts else 1,
    )
