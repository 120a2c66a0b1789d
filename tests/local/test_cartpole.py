"""Real reinforcement learning through the real di-server, while its workers are killed and their number changes."""

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
STEP = r"step \d+  return ([\d.]+)  collectors {collectors}  learners 1"


def a_manifest(folder: Path) -> str:
    """The example, with one collector, and as fast as it can."""
    (folder / "examples").symlink_to(EXAMPLES)
    text = (EXAMPLES / "dijob-cartpole.yaml").read_text()
    for name, value, wanted in (("COLLECTORS", "2", "1"), ("SECONDS_PER_STEP", "0.5", "0")):
        text, count = re.subn(rf'(name: {name}\b[^\n]*\n *value: )"{re.escape(value)}"', rf'\1"{wanted}"', text)
        assert count == 1
    manifest = folder / "job.yaml"
    manifest.write_text(text)
    return str(manifest)


def seen(program: Program, pattern: str) -> re.Match[str]:
    found = re.search(pattern, program.until(lambda line: re.search(pattern, line) is not None))
    assert found is not None
    return found


def process_of(role: str, server: str) -> int:
    """The one process of a role whose job was given this di-server."""
    found = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_it(entry, f"examples.cartpole.{role}", f"KUBERNETES_SERVER_URL={server}")
    ]
    assert len(found) == 1, found
    return found[0]


def _is_it(process: Path, module: str, variable: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return words[1:3] == [b"-m", module.encode()] and variable.encode() in (process / "environ").read_bytes()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False  # it has ended, or is somebody else's


def ask_for_more(server: str, token: str, collectors: int) -> list[str]:
    """As the user who started the cluster."""
    body = {"namespace": "default", "coordinator": "cartpole-coordinator", "collectors": {"replicas": collectors}}
    connection = http.client.HTTPConnection(server, timeout=30)
    connection.request("POST", "/v1alpha1/replicas", json.dumps(body), {"Authorization": f"Bearer {token}"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["success"], answer
    found: list[str] = answer["data"]["collectors"]
    return found


@pytest.mark.timeout(180)
def test_the_job_learns_to_balance_though_its_workers_are_killed_and_three_more_come(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # its python3 has numpy
    program = start("run", a_manifest(tmp_path), "--timeout", "150s")
    server = seen(program, r"di-server at (\S+) gave us").group(1)
    first = float(seen(program, STEP.format(collectors=1)).group(1))
    for role in ("learner", "collector"):
        os.kill(process_of(role, server), signal.SIGKILL)
        lost = seen(program, rf"{role} (cartpole-{role}-\w+\.default:\d+) is lost").group(1)
        assert seen(program, rf"{role} (\S+) is here").group(1) == lost  # its container began anew
        seen(program, STEP.format(collectors=1))

    learner = process_of("learner", server)
    os.kill(learner, signal.SIGSTOP)  # nobody learns until all four are there
    (token,) = tmp_path.glob("trainmaster-*/token")
    more = ask_for_more(server, token.read_text().strip(), 3)
    assert {seen(program, r"collector (\S+) is here").group(1) for _ in more} == set(more)
    os.kill(learner, signal.SIGCONT)
    seen(program, STEP.format(collectors=4))
    code, said, errors = program.end()

    assert code == 0, said + errors
    assert first < 100
    assert re.search(r"solved: the pole stood for (4[789]\d|500)\.\d moments in the mean of 20", said)
    assert containers_of(tmp_path) == []
