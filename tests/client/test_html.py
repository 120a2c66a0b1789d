"""Tables for notebooks: whatever names, messages and output contain, it is text."""

import re
from datetime import UTC, datetime

import pytest

from trainmaster.client.html import MOST_ROWS, WIDTH, job_table, jobs_table
from trainmaster.client.run_model import Replica
from trainmaster.client.status import JobStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAGS = {"table", "thead", "tbody", "tr", "th", "td"}
HOSTILE = """<img src=x onerror=alert(1)>"'&</td></table><script>\x1b[31mred\x00"""


def status(text: str, *replicas: Replica) -> JobStatus:
    return JobStatus(
        namespace=text,
        kind="aitrainingjob",
        name=text,
        phase=text,
        ready=1,
        total=2,
        restarts=3,
        created=NOW,
        message=text,
        outcome="",
        replicas=replicas,
    )


def test_no_text_becomes_a_tag_or_an_attribute() -> None:
    html = job_table(status(HOSTILE, Replica(HOSTILE, HOSTILE, HOSTILE, HOSTILE, lines=(HOSTILE,))), NOW)

    assert set(re.findall(r"</?([^\s>]+)", html)) == TAGS
    assert set(re.findall(r"<\w+ ([^>]*)>", html)) == {'style="text-align: left"'}
    assert "&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp;&lt;/td&gt;" in html
    assert not re.search(r"[\x00-\x1f]", html)


def test_a_job_shows_its_replicas_and_the_output_of_the_failed_one() -> None:
    first = Replica("worker-0", "pod-0", "Running", lines=("step 1", "step 2", "  "))
    second = Replica("worker-1", "pod-1", "Failed", "exit code 1", lines=("boom",))
    job, _, replicas = job_table(status("x", first, second), NOW).partition("</table>")

    assert re.findall(r">([^<>]+)</td>", job) == ["aitrainingjob/x", "x", "x", "1/2", "3", "0s", "x", "boom"]
    assert re.findall(r">([^<>]*)</td>", replicas)[:5] == ["worker-0", "Running", "0", "", "step 2"]


@pytest.mark.parametrize(("count", "rest"), [(MOST_ROWS, ""), (MOST_ROWS + 7, "and 7 more")])
def test_long_lists_and_long_texts_are_cut(count: int, rest: str) -> None:
    html = jobs_table([status("x" * 10_000)] * count, NOW)

    assert html.count("<tr>") == MOST_ROWS + 1 + bool(rest)
    assert rest in html
    assert f"{'x' * (WIDTH - 1)}…" in html
    assert "x" * WIDTH not in html
