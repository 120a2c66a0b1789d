"""`make contract`: runs the contract tests of every client, each with its own environment, and says how they ended."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.contract.environment import CLIENTS, Client, InstallFailed, NoPython, environment, versions_of

LONGEST_RUN = 1800.0


class Outcome(NamedTuple):
    message: str
    is_good: bool


def say(line: str) -> None:
    print(line, flush=True)


def run(client: Client) -> Outcome:
    try:
        python = environment(client, os.environ, say=say)
    except NoPython as missing:
        return Outcome(f"skipped: {missing}", is_good=True)
    except InstallFailed as error:
        return Outcome(f"not installed: {error}", is_good=False)
    say(f"{client.name}: running {' '.join(client.tests)} with {python} …")
    versions, begun = versions_of(python, client.packages), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", f"--junitxml={report}", *client.tests]
        done = subprocess.run(
            command, env={**os.environ, client.variable: str(python)}, check=False, timeout=LONGEST_RUN
        )
        outcome = outcome_of(report.read_text() if report.exists() else "", done.returncode)
    return outcome._replace(message=f"{outcome.message} in {time.monotonic() - begun:.0f} s ({versions})")


def outcome_of(report: str, code: int) -> Outcome:
    """What a JUnit report says. Here a skipped test is a failure: its client is there."""
    if not report:
        return Outcome(f"pytest ended with code {code} and without a report", is_good=False)
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    skipped = [reason.get("message", "") for case in cases for reason in case.iter("skipped")]
    failed = [
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    passed = len(cases) - len(skipped) - len(failed)
    parts = [f"{passed} passed"]
    parts += [f"{len(failed)} failed ({', '.join(failed[:3])})"] if failed else []
    parts += [f"{len(skipped)} skipped ({skipped[0]})"] if skipped else []
    return Outcome(", ".join(parts), is_good=code == 0 and passed > 0 and not skipped)


def main() -> int:
    outcomes = {client.name: run(client) for client in CLIENTS}
    for name, outcome in outcomes.items():
        say(f"client {name}: {outcome.message}")
    return 0 if all(outcome.is_good for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
