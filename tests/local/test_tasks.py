"""A DIJob with tasks whose processes find each other by rank, while they are killed and their number changes."""

import http.client
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.local.conftest import Start
from tests.local.program import Program, containers_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def seen(program: Program, pattern: str) -> str:
    """The first group of the first line that has the pattern."""
    found = re.search(pattern, program.until(lambda line: re.search(pattern, line) is not None))
    assert found is not None
    return found.group(1)


def processes(task: str, folder: Path) -> dict[int, dict[str, str]]:
    """By pid, the environment of the processes of a task of a job that runs in this folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[1:3] == [b"-m", f"examples.tasks.{task}".encode()] and (entry / "cwd").resolve() == folder:
                pairs = (entry / "environ").read_bytes().decode().split("\0")
                found[int(entry.name)] = dict(pair.split("=", 1) for pair in pairs if pair)
        except (FileNotFoundError, NotADirectoryError, PermissionError, ProcessLookupError):
            continue  # it has ended, or is of another user
    return found


def process_of(task: str, folder: Path, rank: str) -> int:
    (pid,) = [pid for pid, environment in processes(task, folder).items() if environment["DI_RANK"] == rank]
    return pid


def call(method: str, url: str, path: str, body: object, token: str) -> dict[str, object]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request(method, path, json.dumps(body), {"Authorization": f"Bearer {token}"})
    answer: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["success"], answer
    return answer


@pytest.mark.timeout(180)
def test_the_job_learns_though_processes_are_killed_and_a_collector_comes_and_goes(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # its python3 has numpy
    (tmp_path / "examples").symlink_to(EXAMPLES)
    program = start("run", str(EXAMPLES / "dijob-tasks.yaml"), "--timeout", "150s")
    seen(program, r"learner-0 +\| step (\d+)  connected ranks \[1, 2, 3\]")
    evaluator = process_of("evaluator", tmp_path, "1")
    os.kill(evaluator, signal.SIGSTOP)  # the job does not end before all of this has happened
    (environment,) = processes("learner", tmp_path).values()
    (token,) = (file.read_text().strip() for file in tmp_path.glob("trainmaster-*/token"))
    url, path = environment["DI_SERVER_URL"], f"/v2alpha1/job/{environment['DI_JOB_ID']}"

    os.kill(process_of("collector", tmp_path, "3"), signal.SIGKILL)
    seen(program, r"learner-0 +\| rank (3) is lost")
    seen(program, r"learner-0 +\| step (\d+)  connected ranks \[1, 2, 3\]")
    os.kill(process_of("learner", tmp_path, "0"), signal.SIGKILL)
    before = int(seen(program, r"learner-0 +\| continue after step (\d+)"))
    seen(program, r"learner-0 +\| step (\d+)  connected ranks \[2, 3\]")

    call("POST", url, f"{path}/replicas", {"replicas": 1}, token)
    seen(program, r"learner-0 +\| step (\d+)  connected ranks \[2, 3, 4\]")
    addresses = call("GET", url, f"{path}/replicas", {}, token)["data"]
    call("POST", url, f"{path}/profilings", {"steps": before}, token)
    call("DELETE", url, f"{path}/replicas", {"replicas": 1}, token)
    seen(program, r"learner-0 +\| rank (4) is lost")
    os.kill(evaluator, signal.SIGCONT)
    code, said, errors = program.end()

    assert code == 0, said + errors
    assert before >= 1
    assert isinstance(addresses, list)
    assert [bool(re.fullmatch(r"127\.\d+\.\d+\.\d+:22270", each)) for each in addresses] == [True] * 5
    assert len(set(addresses)) == 5
    assert re.search(r"solved: the pole stood for (4[789]\d|500)\.\d moments in the mean of 20", said)
    assert re.search(r"dijob/tasks Succeeded", said)
    assert containers_of(tmp_path) == []
