import io
import json
from datetime import UTC, datetime
from typing import Any

from trainmaster.cli.json_lines import JsonLines
from trainmaster.client.run_model import Job, Notice, Replica
from trainmaster.lifecycle.failure import Failure

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def test_phases_events_and_verdicts_are_objects() -> None:
    out = io.StringIO()
    failed = Replica("ps-0", "mnist-ps-0", "Failed", "exit code 3", restarts=2)
    with JsonLines(out) as lines:
        for _ in range(2):
            lines.show([Job("MXJob", "mnist", "Running", "all run")], NOW)
        lines.notice(Notice("mxjob/mnist ps-0", "Warning", "FailedMount", "no map"))
        lines.notice(Notice("mxjob/mnist", "Normal", "Created", "pods"))
        lines.line("ps-0", "hello")
        lines.message("stopping")
        lines.show([Job("MXJob", "mnist", "Failed", "oh", "failed", replicas=(failed,))], NOW, is_last=True)
        lines.end(1, "/logs")
    found: list[dict[str, Any]] = [json.loads(line) for line in out.getvalue().splitlines()]
    times = [each.pop("time") for each in found]
    job = "mxjob/mnist"
    shown = {"name": "ps-0", "pod": "mnist-ps-0", "state": "Failed", "why": "exit code 3", "restarts": 2}

    assert all(datetime.fromisoformat(time).tzinfo for time in times)
    assert found == [
        {"type": "phase", "job": job, "phase": "Running", "message": "all run"},
        {
            "type": "event",
            "job": job,
            "replica": "ps-0",
            "level": "Warning",
            "reason": "FailedMount",
            "message": "no map",
        },
        {"type": "event", "job": job, "level": "Normal", "reason": "Created", "message": "pods"},
        {"type": "message", "message": "stopping"},
        {"type": "phase", "job": job, "phase": "Failed", "message": "oh"},
        {
            "type": "verdict",
            "job": job,
            "outcome": "failed",
            "phase": "Failed",
            "message": "oh",
            "replicas": [shown],
        },
        {"type": "end", "exitCode": 1, "logs": "/logs"},
    ]


def test_a_job_that_did_not_end_was_stopped() -> None:
    out = io.StringIO()
    with JsonLines(out) as lines:
        lines.show([Job("MXJob", "mnist", "Stopped", "stopped by Ctrl-C", "deleted")], NOW, is_last=True)
    assert [json.loads(line).get("outcome") for line in out.getvalue().splitlines()] == [None, "stopped"]


def test_the_verdict_of_a_failed_job_has_its_first_failure() -> None:
    out = io.StringIO()
    failed = Job("MXJob", "mnist", "Failed", "oh", "failed", failure=Failure(replica="worker-2", exit_code=139))
    with JsonLines(out) as lines:
        lines.show([failed], NOW, is_last=True)
    verdict = json.loads(out.getvalue().splitlines()[-1])

    assert verdict["failure"] == {"replica": "worker-2", "exitCode": 139}
