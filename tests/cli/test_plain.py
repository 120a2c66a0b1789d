import io
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from trainmaster.cli.plain import Lines
from trainmaster.client.restart_number import LastRestart
from trainmaster.client.run_model import Job, Notice, Replica
from trainmaster.lifecycle.failure import Failure

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def job(phase: str, message: str = "", *replicas: Replica) -> Job:
    return Job("AITrainingJob", "mnist", phase, message, replicas=replicas)


def replica(name: str, state: str = "Running", why: str = "") -> Replica:
    return Replica(name, f"mnist-{name}", state, why)


def test_a_line_stands_behind_its_label() -> None:
    out = io.StringIO()
    with Lines(out) as lines:
        lines.line("ps-0      ", "hello | more")
    assert out.getvalue() == "ps-0       | hello | more\n"


def test_each_change_is_written_once() -> None:
    out = io.StringIO()
    with Lines(out) as lines:
        for _ in range(2):
            lines.show([job("")], NOW)
            lines.show([job("Pending")], NOW)
            lines.show([job("Pending")], NOW)
    assert out.getvalue() == "aitrainingjob/mnist Pending\n"


def test_phases_have_messages_and_abnormal_states_have_reasons() -> None:
    out = io.StringIO()
    with Lines(out) as lines:
        lines.show([job("Running", "all pods are running", replica("ps-0"))], NOW)
        lines.show([job("Running", "all pods are running", replica("ps-0", "Failed", "exit code 3"))], NOW)
        lines.show([job("Failed", "ps-0 failed", replica("ps-0", "Failed", "exit code 3"))], NOW, is_last=True)
    assert out.getvalue().splitlines() == [
        "aitrainingjob/mnist Running: all pods are running",
        "aitrainingjob/mnist ps-0 Failed: exit code 3",
        "aitrainingjob/mnist Failed: ps-0 failed",
    ]


@pytest.mark.parametrize("is_read", [True, False])
def test_the_output_of_the_first_failure_is_written_at_the_end_if_its_log_was_not_read(is_read: bool) -> None:
    out = io.StringIO()
    failed = msgspec.structs.replace(replica("ps-0", "Stopped"), lines=("boom",) if is_read else ())
    last = job("Failed", "ps-0 failed", failed)
    with Lines(out) as lines:
        failure = Failure(replica="ps-0", output=("step 1", "boom"))
        lines.show([msgspec.structs.replace(last, failure=failure)], NOW, is_last=True)

    output = [] if is_read else ["ps-0 | step 1", "ps-0 | boom"]
    assert out.getvalue().splitlines() == [*output, "aitrainingjob/mnist Failed: ps-0 failed"]


def test_output_is_flushed() -> None:
    """A pipe shows a line when it is there, not when the job has ended."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, write_through=False)
    with Lines(out) as lines:
        lines.line("ps-0", "hello")
        lines.show([], NOW)
        assert raw.getvalue() == b"ps-0 | hello\n"
        lines.message("stopping")
        assert raw.getvalue().endswith(b"stopping\n")


def test_a_progress_bar_is_shown_once_a_second_and_at_its_end() -> None:
    out = io.StringIO()
    with Lines(out) as lines:
        for percent in range(101):
            lines.progress("ps-0", f"{percent}%", 50.0 + percent / 40)
        lines.line("ps-0", "100% done")
    assert out.getvalue().splitlines() == [f"ps-0 | {state}" for state in ("0%", "40%", "80%", "100% done")]


def test_the_last_state_of_a_progress_bar_is_not_shown_twice() -> None:
    out = io.StringIO()
    with Lines(out) as lines:
        lines.progress("ps-0", "100%", 50.0)
        for _ in range(2):
            lines.line("ps-0", "100%")
    assert out.getvalue().splitlines() == ["ps-0 | 100%"] * 2  # the bar, and a line of its own


def test_bars_of_several_replicas_do_not_wait_for_each_other() -> None:
    out = io.StringIO()
    with Lines(out) as lines:
        for label in ("ps-0", "ps-1"):
            lines.progress(label, "1%", 50.0)
    assert out.getvalue().splitlines() == ["ps-0 | 1%", "ps-1 | 1%"]


def test_many_short_bars_are_shown_by_their_ends() -> None:
    """As of one epoch after the other."""
    out = io.StringIO()
    with Lines(out) as lines:
        for epoch in range(3):
            for state in ("half", "full"):
                lines.progress("ps-0", f"{epoch} {state}", 50.0 + epoch / 10)
            lines.line("ps-0", f"{epoch} done")
    assert out.getvalue().splitlines() == [
        "ps-0 | 0 half",
        "ps-0 | 0 done",
        "ps-0 | 1 done",
        "ps-0 | 2 done",
    ]


def test_an_event_of_a_pod_is_written_once_also_if_it_is_the_state_of_the_pod() -> None:
    out = io.StringIO()
    mount = Notice("aitrainingjob/mnist ps-0", "Warning", "FailedMount", 'configmap "x" not found')
    normal = Notice("aitrainingjob/mnist ps-0", "Normal", "Started", "Started container")
    with Lines(out) as lines:
        for notice in (mount, normal, mount):
            lines.notice(notice)
            lines.show([job("Creating", "", replica("ps-0", "FailedMount", 'configmap "x" not found'))], NOW)
    assert out.getvalue().splitlines() == [
        'aitrainingjob/mnist ps-0 FailedMount: configmap "x" not found',
        "aitrainingjob/mnist Creating",
    ]


def test_each_restart_is_a_line_with_its_cause_also_if_it_is_the_same_again() -> None:
    """And the phase that says less about it is not written."""
    out = io.StringIO()
    failed = replica("ps-0", "Failed", "exit code 1")
    with Lines(out) as lines:
        for number in (1, 2):
            begun = LastRestart(NOW + timedelta(seconds=number), number, 3, "ps-0 exited with code 1: flaky")
            again = job("Terminating", f"restart times is {number}", failed)
            waits = {"restart": begun, "restart_at": NOW + timedelta(seconds=10)}
            for _ in range(2):
                lines.show([msgspec.structs.replace(again, **waits)], NOW)
            lines.show([msgspec.structs.replace(job("Running", "", replica("ps-0")), restart=begun)], NOW)
    assert out.getvalue().splitlines() == [
        "aitrainingjob/mnist ps-0 Failed: exit code 1",
        "aitrainingjob/mnist restart 1 of 3 in 10 s: ps-0 exited with code 1: flaky",
        "aitrainingjob/mnist Running",
        "aitrainingjob/mnist ps-0 Failed: exit code 1",
        "aitrainingjob/mnist restart 2 of 3 in 10 s: ps-0 exited with code 1: flaky",
        "aitrainingjob/mnist Running",
    ]


def test_nothing_that_others_wrote_controls_the_terminal_behind_a_pipe() -> None:
    """As of `trainmaster run … | tee out`."""
    out, hostile = io.StringIO(), "a\x1b]52;c;cm0=\x07\x9b2J\u202eb"
    with Lines(out) as lines:
        lines.line("ps-0", hostile)
        lines.progress("ps-0", hostile, 50.0)
        lines.notice(Notice("aitrainingjob/mnist ps-0", "Warning", "FailedMount", hostile))
        lines.show([job("Failed", hostile, replica("ps-0", "Failed", hostile))], NOW, is_last=True)
        lines.message(hostile)
    assert out.getvalue().splitlines() == [
        "ps-0 | ab",
        "ps-0 | ab",
        "aitrainingjob/mnist ps-0 FailedMount: ab",
        "aitrainingjob/mnist ps-0 Failed: ab",
        "aitrainingjob/mnist Failed: ab",
        "ab",
    ]
