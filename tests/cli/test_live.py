import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console, RenderableType

from trainmaster.cli.live import Screen, summary, view
from trainmaster.cli.run_model import Job, Replica
from trainmaster.cli.text import age, printable

START = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
NOW = START + timedelta(seconds=75)


def replica(index: int = 0, state: str = "Running", **fields: Any) -> Replica:
    return Replica(f"trainer-{index}", f"mnist-trainer-{index}", state, since=START, **fields)


def job(*replicas: Replica, name: str = "mnist", **fields: Any) -> Job:
    return Job("AITrainingJob", name, since=START, replicas=replicas, **fields)


def rendered(picture: RenderableType, width: int = 72) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def seen(jobs: Sequence[Job], *, height: int = 50, note: str = "", width: int = 72) -> list[str]:
    return rendered(view(jobs, NOW, height=height, note=note), width)


# --- the view ---


def test_a_job_is_shown_with_its_replicas() -> None:
    running = job(
        replica(0, lines=("first", "epoch 1")),
        replica(1, "Succeeded", until=START + timedelta(seconds=9), restarts=2),
        replica(2, "Failed", why="exit code 3", lines=("oh",)),
        phase="Running",
        message="all pods are running",
    )
    assert seen([running]) == [
        "AITrainingJob mnist  Running  1m15s  1/3 running, 2 ended",
        "all pods are running",
        "replica    state      restarts    age  last line",
        "trainer-0  Running           0  1m15s  epoch 1",
        "trainer-1  Succeeded         2     9s",
        "trainer-2  Failed            0  1m15s  exit code 3",
        "",
    ]


def test_a_job_without_a_phase_is_shown() -> None:
    assert seen([job()])[0] == "AITrainingJob mnist  Accepted  1m15s  0/0 running, 0 ended"


def test_a_long_line_is_cut_to_the_width() -> None:
    lines = seen([job(replica(lines=("x" * 200,)), phase="Running", message="y" * 200)], width=60)

    assert all(len(line) <= 60 for line in lines)
    assert lines[1].endswith("y…")
    assert lines[3].endswith("x…")


def test_the_time_of_a_job_that_ended_stands_still() -> None:
    ended = job(phase="Succeed", outcome="succeeded", until=START + timedelta(seconds=5))
    assert seen([ended])[0] == "AITrainingJob mnist  Succeed  5s  0/0 running, 0 ended"


def test_where_not_all_replicas_fit_those_with_trouble_are_shown() -> None:
    many = [replica(index) for index in range(100)]
    many[70] = replica(70, "CrashLoopBackOff", why="back-off")
    many[80] = replica(80, "Starting")
    lines = seen([job(*many)], height=10)

    assert [line.split()[0] for line in lines[2:-2]] == ["trainer-0", "trainer-70", "trainer-80"]
    assert lines[-2] == "… and 97 more"
    assert len(lines) < 10


def test_all_jobs_and_the_note_are_shown() -> None:
    lines = seen([job(name="a"), job(name="b")], note="stopping the jobs")
    assert [line for line in lines if "AITrainingJob" in line or "stopping" in line] == [
        "AITrainingJob a  Accepted  1m15s  0/0 running, 0 ended",
        "AITrainingJob b  Accepted  1m15s  0/0 running, 0 ended",
        "stopping the jobs",
    ]


# --- the end ---


def test_the_summary_has_outcome_reason_and_last_lines_of_failed_replicas() -> None:
    message = "replica trainer-1 failed because of " + "a long reason " * 5
    failed = job(
        replica(0, "Stopped", lines=("fine",)),
        replica(1, "Failed", why="exit code 3", lines=("Traceback:", "\x1b[31mValueError\x1b[0m")),
        phase="Failed",
        outcome="failed",
        message=message,
    )
    lines = rendered(summary([failed], NOW))

    assert message.split() == " ".join(lines[1:3]).split()
    assert lines[-4:] == ["the last lines of trainer-1 (exit code 3):", "  Traceback:", "  ValueError", ""]
    assert not any("fine" in line for line in lines if line.startswith("  "))


def test_the_summary_has_the_last_lines_of_replicas_that_exceeded_the_time_limit() -> None:
    stopped = replica(1, "Stopped", why="the job exceeded its time limit", lines=("step 41",))
    done = replica(2, "Stopped", lines=("served",))

    lines = rendered(summary([job(stopped, done, phase="Timeout", outcome="failed")], NOW))

    assert lines[-3:] == ["the last lines of trainer-1 (the job exceeded its time limit):", "  step 41", ""]


# --- details ---


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m0s"), (3599, "59m59s"), (3600, "1h0m"), (90000, "1d1h"), (-5, "0s")],
)
def test_an_age_is_short(seconds: float, text: str) -> None:
    assert age(START, START + timedelta(seconds=seconds)) == text


def test_a_replica_that_has_not_started_has_no_age() -> None:
    assert age(None, NOW) == "-"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        pytest.param("plain [red]text[/red]", "plain [red]text[/red]", id="plain"),
        pytest.param("\x1b[1;32mgreen\x1b[0m \x1b[2Kerased", "green erased", id="colours"),
        pytest.param("10%\r20%\r30%", "30%", id="progress"),
        pytest.param("30%\r", "30%", id="progress with an end"),
        pytest.param("a\tb\x07\x00", "a b", id="controls"),
    ],
)
def test_a_line_of_a_program_cannot_move_the_cursor(line: str, text: str) -> None:
    assert printable(line) == text


def test_words_in_brackets_are_no_colours() -> None:
    assert seen([job(replica(lines=("[red]loss[/red]",)), message="[bold]x")])[3].endswith("[red]loss[/red]")


# --- the screen ---


def test_the_screen_ends_with_the_conclusion_and_a_cursor() -> None:
    console = Console(file=io.StringIO(), width=72, height=20, force_terminal=True, color_system=None)
    with Screen(console) as screen:
        screen.show([job(phase="Running")], NOW)
        screen.message("stopping")
        screen.show([job(phase="Terminating")], NOW)
        screen.show([job(phase="Succeed")], NOW, is_last=True)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()

    assert text.count("stopping") == 1
    assert text.rindex("Succeed") > text.rindex("\x1b[?25h")
    assert text.endswith("\n")


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=72, force_terminal=True)
    console.print(view([job(replica(0, "Failed"))], NOW, height=9))
    assert isinstance(console.file, io.StringIO)

    assert "\x1b[3" not in console.file.getvalue()
