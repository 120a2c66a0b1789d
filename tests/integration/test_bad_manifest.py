"""Jobs that the API server takes although they cannot run: each is told what to change, and the operator goes on.

`tests/manifests` has the table, and shows without an operator what could be said.
"""

import asyncio
import time
from typing import NamedTuple

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.integration.metric import Metrics
from tests.integration.scene import Job
from tests.integration.stage import stage_on
from tests.manifests.bad import ACCEPTED_ROWS, Row
from tests.manifests.build import aitrainingjob, dijob

WINDOW = 6.0
"""Seconds in which passes are counted: long enough for the slowest retry to be one of several."""


class Story(NamedTuple):
    """What the bad jobs were told, how much work they made, and what became of good ones beside them."""

    said: dict[str, str]
    writes: dict[str, int]
    """How often the status of each was stored."""
    passes_a_second: float
    failed_passes: float
    good: list[str]


async def tell(plane: ControlPlane, operator: OperatorProcess) -> Story:
    async with stage_on(plane) as stage:

        async def create(row: Row) -> Job:
            scene = await stage.scene(f"bad-{row.id}")
            return await scene.create(row.manifest)

        jobs = await asyncio.gather(*(create(row) for row in ACCEPTED_ROWS))
        said = await asyncio.gather(*(complaint(job) for job in jobs))
        before, started = await measure(operator), time.monotonic()
        await asyncio.sleep(WINDOW)
        after, took = await measure(operator), time.monotonic() - started
        writes = [len(job.statuses) for job in jobs]
        passes = after.total("controller_runtime_reconcile_total") - before.total("controller_runtime_reconcile_total")
        scene = await stage.scene("good-beside-bad")
        good = [await scene.create(dijob("good-di")), await scene.create(aitrainingjob("good-ai"))]
        for job in good:
            await job.live()
        for job in jobs:
            await job.delete()  # the next operator shall not try them again
        return Story(
            said={row.id: sentence for row, sentence in zip(ACCEPTED_ROWS, said, strict=True)},
            writes={row.id: count for row, count in zip(ACCEPTED_ROWS, writes, strict=True)},
            passes_a_second=passes / took / len(jobs),
            failed_passes=after.total("controller_runtime_reconcile_errors_total"),
            good=[job.phases[-1] for job in good],
        )


async def complaint(job: Job) -> str:
    """The sentence of the condition that says why it does not run; what is not said is empty."""

    def found() -> str:
        refused, failed = job.condition("Accepted"), job.condition("PodCreateFailed")
        said = [refused["message"]] if refused.get("status") == "False" else []
        said += [failed["message"]] if failed.get("status") == "True" else []
        return "; ".join(said)

    try:
        return await job.until(found, "it is told what to change")
    except AssertionError as error:
        return f"nothing: {error}"


async def measure(operator: OperatorProcess) -> Metrics:
    return Metrics(await asyncio.to_thread(operator.metrics))


@pytest.fixture(scope="module")
def story(plane: ControlPlane, operator: OperatorProcess) -> Story:
    return asyncio.run(tell(plane, operator))


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ACCEPTED_ROWS])
def test_a_bad_job_is_told_what_to_change(row: Row, story: Story) -> None:
    assert row.says in story.said[row.id]


def test_a_bad_job_is_told_once(story: Story) -> None:
    assert story.writes == dict.fromkeys(story.said, 1)


def test_a_bad_job_costs_at_most_a_pass_a_second(story: Story) -> None:
    assert story.passes_a_second <= 1


def test_a_bad_job_brings_out_no_error_of_the_operator(story: Story) -> None:
    assert story.failed_passes == 0


def test_good_jobs_run_beside_bad_ones(story: Story) -> None:
    assert story.good == ["Succeeded", "Succeed"]
