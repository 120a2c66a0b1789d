import io
from datetime import UTC, datetime

from trainmaster.cli.plain import Lines
from trainmaster.cli.scene import Job, Replica

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


def test_each_change_is_told_once() -> None:
    out = io.StringIO()
    with Lines(out) as lines:
        for _ in range(2):
            lines.show([job("")], NOW)
            lines.show([job("Pending")], NOW)
            lines.show([job("Pending")], NOW)
    assert out.getvalue() == "aitrainingjob/mnist Pending\n"


def test_a_phase_is_told_with_its_message_and_trouble_with_its_reason() -> None:
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


def test_nothing_waits_in_a_buffer() -> None:
    """A pipe shows a line when it is there, not when the job has ended."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, write_through=False)
    with Lines(out) as lines:
        lines.line("ps-0", "hello")
        lines.show([], NOW)
        assert raw.getvalue() == b"ps-0 | hello\n"
        lines.say("stopping")
        assert raw.getvalue().endswith(b"stopping\n")
