import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console, RenderableType

from trainmaster.cli.live import Screen, log_view, rows_of, summary, view
from trainmaster.client.restart_number import LastRestart
from trainmaster.client.run_model import Job, Replica
from trainmaster.client.text import age, printable
from trainmaster.lifecycle.failure import Failure

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


def seen(jobs: Sequence[Job], *, height: int = 50, notices: Sequence[str] = (), width: int = 72) -> list[str]:
    return rendered(view(jobs, NOW, height=height, notices=notices), width)


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


def test_beyond_twenty_replicas_those_in_the_same_state_share_a_row() -> None:
    many = [replica(index) for index in range(100)]
    many[70] = replica(70, "CrashLoopBackOff", why="back-off")
    many[80] = replica(80, "Starting")
    lines = seen([job(*many, Replica("ps-0", "mnist-ps-0", "Running"))], height=10)

    assert [line.split("  ")[0] for line in lines[2:-1]] == [
        "trainer-0…69,71…79,81…99 (98)",
        "trainer-70",
        "trainer-80",
        "ps-0",
    ]


@pytest.mark.parametrize(
    ("indices", "name"),
    [
        (range(21), "trainer-0…20"),
        ([*range(20), 30], "trainer-0…19,30 (21)"),
        (range(0, 60, 2), "trainer-0,2,4,6,8,10,12,14,16,… (30)"),
    ],
)
def test_a_row_of_many_replicas_names_them(indices: Sequence[int], name: str) -> None:
    assert [row.name for row in rows_of([replica(index) for index in indices])] == [name]


def test_where_not_all_rows_fit_those_with_problems_are_shown() -> None:
    many = [replica(index) for index in range(20)]
    many[7] = replica(7, "CrashLoopBackOff", why="back-off")
    many[8] = replica(8, "Starting")
    lines = seen([job(*many)], height=8)

    assert [line.split()[0] for line in lines[2:-2]] == ["trainer-0", "trainer-7", "trainer-8"]
    assert lines[-2] == "… and 17 more"
    assert len(lines) < 8


def test_all_jobs_and_the_notices_are_shown() -> None:
    lines = seen([job(name="a"), job(name="b")], notices=["FailedMount: no map", "stopping the jobs"])
    assert [line for line in lines if line and not line.startswith("replica")] == [
        "AITrainingJob a  Accepted  1m15s  0/0 running, 0 ended",
        "AITrainingJob b  Accepted  1m15s  0/0 running, 0 ended",
        "FailedMount: no map",
        "stopping the jobs",
    ]


def test_the_seconds_until_a_restart_are_counted_down_beside_the_cause() -> None:
    soon = NOW + timedelta(seconds=8)
    failed = replica(1, "Failed", why="exit code 3", lines=("step 1", "no data"))
    waits = job(
        replica(0, "CrashLoopBackOff", why="back-off 10s", restart_at=soon, lines=("oom",)),
        failed,
        message="oh",
        restart_at=soon,
        restart=LastRestart(NOW, 2, 3, "trainer-1 exited with code 3: no data"),
    )
    lines = seen([waits])

    assert lines[1] == "restart 2 of 3 in 8 s: trainer-1 exited with code 3: no data"
    assert lines[3].endswith("restart in 8s after: oom")
    assert rendered(view([waits], soon, height=50))[1] == "oh"


def test_the_log_of_a_replica_is_shown_with_the_number_of_its_lines() -> None:
    one = replica(1, lines=tuple(f"step {number}" for number in range(50)), line_count=43_716)
    lines = rendered(log_view(job(one, phase="Running", message="fine"), one, NOW, height=9, keys="Esc all"))

    assert lines == [
        "AITrainingJob mnist  Running  1m15s  1/1 running, 0 ended",
        "fine",
        "trainer-1  Running  the last 4 of 43,716 lines",
        *(f"step {number}" for number in range(46, 50)),
        "Esc all",
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

    place = lines.index("the last lines of trainer-1 (exit code 3):")
    assert lines[place + 1 : place + 3] == ["  Traceback:", "  ValueError"]
    assert lines[place + 3] == "AITrainingJob mnist  Failed  1m15s  0/2 running, 2 ended"
    assert message.split() == " ".join(lines[place + 4 :]).split()
    assert not any("fine" in line for line in lines if line.startswith("  "))


@pytest.mark.parametrize("lines", [(), ("step 1", "ValueError")], ids=["deleted before it was read", "read"])
def test_the_summary_begins_with_the_output_of_the_first_failure(lines: tuple[str, ...]) -> None:
    failed = job(
        replica(0, "Failed", why="exit code 1", lines=("peer closed",)),
        replica(1, "Failed", why="exit code 3", lines=lines),
        phase="Failed",
        outcome="failed",
        failure=Failure(replica="trainer-1", output=("step 1", "ValueError")),
    )
    shown = [line for line in rendered(summary([failed], NOW)) if line.startswith(("the last lines", "  "))]

    why = " (exit code 3)" if lines else ""
    assert shown[:4] == [
        f"the last lines of trainer-1{why}:",
        "  step 1",
        "  ValueError",
        "the last lines of trainer-0 (exit code 1):",
    ]


def test_the_summary_has_the_last_lines_of_replicas_that_exceeded_the_time_limit() -> None:
    stopped = replica(1, "Stopped", why="the job exceeded its time limit", lines=("step 41",))
    done = replica(2, "Stopped", lines=("served",))

    lines = rendered(summary([job(stopped, done, phase="Timeout", outcome="failed")], NOW))

    assert lines[-3:-1] == ["the last lines of trainer-1 (the job exceeded its time limit):", "  step 41"]


def test_the_verdict_of_a_failed_job_is_not_dim() -> None:
    failed = job(replica(0, "Failed"), phase="Failed", outcome="failed", message="trainer-0 failed")
    console = Console(file=io.StringIO(), width=72, force_terminal=True, color_system="standard", _environ={})
    console.print(summary([failed], NOW))
    assert isinstance(console.file, io.StringIO)

    assert "\x1b[31mtrainer-0 failed\x1b[0m" in console.file.getvalue()


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


def screen_on(file: io.StringIO) -> Screen:
    return Screen(Console(file=file, width=72, height=20, force_terminal=True, color_system=None))


def test_the_screen_ends_with_the_conclusion_and_a_cursor() -> None:
    file = io.StringIO()
    with screen_on(file) as screen:
        screen.show([job(phase="Running")], NOW)
        screen.message("stopping")
        screen.message("Warning: no disk")
        screen.show([job(phase="Terminating")], NOW)
        screen.show([job(phase="Succeed")], NOW, is_last=True)
        screen.end(0, "/logs/of/the/run")
    drawn, _, left = file.getvalue().rpartition("\x1b[?1049l")  # the end of the alternate screen

    assert drawn.count("stopping") == 1
    assert "\x1b[?25h" in drawn
    assert "Warning: no disk" in left
    assert "Succeed" in left
    assert left.endswith("logs: /logs/of/the/run\n")


def test_keys_show_the_log_of_one_replica_after_the_other() -> None:
    file = io.StringIO()
    replicas = [replica(index, lines=(f"line of {index}",)) for index in range(2)]
    replicas.append(replica(2, "Failed", why="exit code 3", lines=("Traceback",)))
    shown = []
    with screen_on(file) as screen:
        for key in ("", "next", "next", "failed", "next", "previous", "all"):
            screen.press(key) if key else None
            file.truncate(0)
            screen.show([job(*replicas)], NOW)
            text = file.getvalue()
            shown.append(
                [name for name in ("line of 0", "line of 1", "Traceback", "exit code 3  the last") if name in text]
            )

    every = ["line of 0", "line of 1"]
    traceback = ["Traceback", "exit code 3  the last"]
    assert shown == [every, ["line of 0"], ["line of 1"], traceback, ["line of 0"], traceback, every]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=72, force_terminal=True)
    console.print(view([job(replica(0, "Failed"))], NOW, height=9))
    assert isinstance(console.file, io.StringIO)

    assert "\x1b[3" not in console.file.getvalue()
