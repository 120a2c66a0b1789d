"""Every write of a job's life goes wrong once, in every way: the job ends as if nothing had happened.

All jobs run at once in one operator; each has a namespace of its own, by which the proxy knows its fault.
"""

import asyncio
from contextlib import suppress
from typing import NamedTuple

import pytest

from testbed.admin import Admin, eventually
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import Call, FaultProxy, answer, cut_after, cut_before, hang
from tests.faults.life import AITRAININGJOB, DIJOB, SUBJECTS, Subject
from tests.faults.scenario import Outcome, Scenario, Step, Trouble, run_all, steps_of
from tests.faults.world import World

REQUEST_TIMEOUT = 2.0
EVENTS_PATIENCE = 60.0

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


class Played(NamedTuple):
    """What became of every job by the id of its scenario, and what was written after all had ended."""

    outcomes: dict[str, Outcome]
    late: list[Call]


@pytest.fixture(scope="module")
def played(plane: ControlPlane) -> Played:
    with FaultProxy(plane) as proxy:
        return asyncio.run(_play(plane, proxy))


async def _play(plane: ControlPlane, proxy: FaultProxy) -> Played:
    args = [f"--request-timeout={REQUEST_TIMEOUT:g}s"]
    async with OperatorProcess(plane, server=proxy.url, args=args), Admin.of(plane) as admin, World(plane) as world:
        outcomes = await run_all([*FAULTLESS.values()], admin, world, proxy)
        outcomes |= await run_all(SCENARIOS, admin, world, proxy)
        await asyncio.sleep(REQUEST_TIMEOUT)  # what is on its way has arrived by now, or was given up
        before = len(proxy.writes())
        await asyncio.sleep(REQUEST_TIMEOUT)
        late = [call for call in proxy.writes()[before:] if call.namespace in outcomes]
        with suppress(AssertionError):  # the test of the scenario says it
            await eventually(lambda: _has_met_all_troubles(outcomes), timeout=EVENTS_PATIENCE)
        return Played(outcomes, late)


async def _has_met_all_troubles(outcomes: dict[str, Outcome]) -> None:
    """Events are sent in the background, one by one: they may come long after their job has ended."""
    assert not any(outcomes[scenario.id].missed for scenario in EVENT)


@pytest.mark.parametrize("subject", [pytest.param(subject, id=subject.word) for subject in SUBJECTS])
def test_a_life_without_faults_is_made_of_these_calls(played: Played, subject: Subject) -> None:
    outcome = played.outcomes[FAULTLESS[subject].id]

    assert not outcome.error, outcome
    writes = [call for call in outcome.calls if call.is_write and call.resource != "events"]
    assert sorted(steps_of(writes)) == sorted(STEPS[subject])
    assert outcome.incarnations == outcome.once_each
    assert outcome.status["phase"] == subject.ended


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.id) for scenario in SCENARIOS])
def test_a_job_ends_as_if_nothing_had_happened_despite(played: Played, scenario: Scenario) -> None:
    outcome = played.outcomes[scenario.id]

    assert not outcome.error, outcome
    assert not outcome.missed
    assert not outcome.leftovers
    assert outcome.incarnations == outcome.once_each, outcome
    assert outcome.status == played.outcomes[FAULTLESS[scenario.subject].id].status, outcome


def test_nothing_is_written_for_jobs_that_have_ended(played: Played) -> None:
    assert not played.late, [str(call) for call in played.late]
