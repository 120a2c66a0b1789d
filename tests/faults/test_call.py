"""Every write of a job's life goes wrong once, in every way: the job ends as if nothing had happened.

All jobs run at once in one operator; each has a namespace of its own, by which the proxy knows its fault.
"""

import asyncio

import pytest

from testbed.admin import Admin
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import FaultProxy, answer, cut_after, cut_before, hang
from tests.faults.life import AITRAININGJOB, DIJOB, SUBJECTS, Subject
from tests.faults.scenario import Outcome, Scenario, Step, Trouble, run_all, steps_of
from tests.faults.world import World

REQUEST_TIMEOUT = 3.0

FAULTS = {
    "409": answer(409),
    "429": answer(429, retry_after=1),
    "500": answer(500),
    "hang": hang,
    "cut-before": cut_before,
    "cut-after": cut_after,
}

# What the operator writes in a life without faults. `test_a_life_without_faults_is_made_of_these_calls` keeps it true.
STEPS = {
    DIJOB: [
        Step("POST", "services", "job-coordinator"),
        Step("POST", "pods", "job-coordinator"),
        *(Step("PATCH", "dijobs", "job", "status", nth) for nth in (1, 2, 3)),
        Step("DELETE", "pods", "job-coordinator"),
        Step("DELETE", "services", "job-coordinator"),
    ],
    AITRAININGJOB: [
        *(Step("POST", resource, name) for resource in ("services", "pods") for name in AITRAININGJOB.pods),
        *(Step("PATCH", "aitrainingjobs", "job", "status", nth) for nth in (1, 2, 3, 4, 5)),
        *(Step("DELETE", resource, name) for resource in ("pods", "services") for name in AITRAININGJOB.pods),
    ],
}

EVENTS = Step("POST", "events", "")


def _next_try(step: Step, fault: str) -> Step:
    """Where the status is stored for the nth time, when each time before took a second try."""
    return step if fault == "cut-after" else step._replace(nth=2 * step.nth - 1)


FAULTLESS = {subject: Scenario(subject, "no-fault") for subject in SUBJECTS}

ONCE = [
    Scenario(subject, f"{step}-{word}", [Trouble(step, fault)])
    for subject, steps in STEPS.items()
    for step in steps
    for word, fault in FAULTS.items()
]

EACH = [
    Scenario(subject, f"each-call-{word}", [Trouble(_next_try(step, word), fault) for step in steps])
    for subject, steps in STEPS.items()
    for word, fault in FAULTS.items()
]

EVENT = [
    Scenario(subject, f"events-{word}", [Trouble(EVENTS, fault, lasts=True)])
    for subject in SUBJECTS
    for word, fault in FAULTS.items()
]

SCENARIOS = [*EVENT, *EACH, *ONCE]  # those that take longest begin first


@pytest.fixture(scope="module")
def outcomes(plane: ControlPlane) -> dict[str, Outcome]:
    """What became of every job, by the id of its scenario."""

    async def play(proxy: FaultProxy) -> dict[str, Outcome]:
        args = [f"--request-timeout={REQUEST_TIMEOUT:g}s"]
        async with OperatorProcess(plane, server=proxy.url, args=args), Admin.of(plane) as admin, World(plane) as world:
            faultless = await run_all([*FAULTLESS.values()], admin, world, proxy)
            found = faultless | await run_all(SCENARIOS, admin, world, proxy)
            await asyncio.sleep(2 * REQUEST_TIMEOUT)  # whatever is on its way has arrived or was given up
            return found

    with FaultProxy(plane) as proxy:
        return asyncio.run(play(proxy))


@pytest.mark.parametrize("subject", [pytest.param(subject, id=subject.word) for subject in SUBJECTS])
def test_a_life_without_faults_is_made_of_these_calls(outcomes: dict[str, Outcome], subject: Subject) -> None:
    outcome = outcomes[FAULTLESS[subject].id]

    assert not outcome.error, outcome
    writes = [call for call in outcome.calls if call.is_write and call.resource != "events"]
    assert sorted(steps_of(writes)) == sorted(STEPS[subject])
    assert outcome.incarnations == outcome.once_each
    assert outcome.status["phase"] == subject.ended


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.id) for scenario in SCENARIOS])
def test_a_job_ends_as_if_nothing_had_happened_despite(outcomes: dict[str, Outcome], scenario: Scenario) -> None:
    outcome = outcomes[scenario.id]

    assert not outcome.error, outcome
    assert not outcome.missed
    assert not outcome.leftovers
    assert outcome.incarnations == outcome.once_each, outcome
    assert outcome.status == outcomes[FAULTLESS[scenario.subject].id].status, outcome
