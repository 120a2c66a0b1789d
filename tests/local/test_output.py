"""Output of programs: all of it is kept, at any rate."""

import json
import signal
from pathlib import Path

import pytest

from tests.local.conftest import Start, Up
from tests.local.program import job, python, role, script, written

FLOOD = 1_000_000
"""Lines of a program that writes faster than its log is read; they do not fit into the files of the log."""


def kept(out: str) -> Path:
    """The folder in the last line."""
    return Path(out.splitlines()[-1].removeprefix("logs: "))


def test_the_logs_of_a_run_are_kept_and_the_last_line_says_where(start: Start, tmp_path: Path) -> None:
    code, out, _ = start("run", written(tmp_path, job(trainer=role(script("echo epoch 1; exit 3"))))).end()

    assert code == 1
    assert kept(out).parent == tmp_path / ".local" / "state" / "trainmaster" / "runs"
    assert {path.name: path.read_text() for path in kept(out).iterdir()} == {
        "job-trainer-0.aitj-main.0.log": "epoch 1\n"
    }


def test_no_line_of_a_flood_is_missing(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(["seq", str(FLOOD)])))
    code, out, _ = start("run", file).end()
    text = "".join(f"{number}\n" for number in range(1, FLOOD + 1))

    assert code == 0
    assert "".join(line[12:] for line in out.splitlines(keepends=True) if line.startswith("trainer-0 |")) == text
    assert (kept(out) / "job-trainer-0.aitj-main.0.log").read_text() == text


@pytest.mark.parametrize("clean", ["Running", "All"], ids=["pods stay", "pods are deleted at the end"])
def test_no_line_of_a_flood_is_missing_on_the_local_cluster(
    up: Up, start: Start, state: Path, tmp_path: Path, clean: str
) -> None:
    up()
    flood = script(f"echo 0; until [ -e go ]; do sleep 0.05; done; seq {FLOOD}")
    file = written(tmp_path, job(spec={"cleanPodPolicy": clean}, trainer=role(flood)))
    program = start("run", file, "--kubeconfig", str(state / "kubeconfig"))
    program.until(lambda line: line == "trainer-0 | 0\n")
    (tmp_path / "go").touch()
    code, out, _ = program.end()
    text = "".join(f"trainer-0 | {number}\n" for number in range(FLOOD + 1))

    assert code == 0
    assert "".join(line for line in out.splitlines(keepends=True) if line.startswith("trainer-0 |")) == text
    assert start("logs", "job", "--all", "--state", str(state)).end() == (0, text, "")


TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 6, in <module>
ZeroDivisionError: division by zero
"""


def test_what_is_written_to_stderr_is_between_the_lines_of_stdout_before_and_after_it(
    start: Start, tmp_path: Path
) -> None:
    program = (
        "import sys\n"
        "for step in range(500):\n"
        f"    print('step', step); sys.stderr.write({TRACEBACK!r}); print('goes on after', step)\n"
    )
    code, out, _ = start("run", written(tmp_path, job(trainer=role(python(program))))).end()
    text = "".join(f"step {step}\n{TRACEBACK}goes on after {step}\n" for step in range(500))

    assert code == 0
    assert "".join(line[12:] for line in out.splitlines(keepends=True) if line.startswith("trainer-0 |")) == text
    assert (kept(out) / "job-trainer-0.aitj-main.0.log").read_text() == text


def test_logs_that_cannot_be_kept_do_not_stop_a_run(start: Start, tmp_path: Path) -> None:
    (tmp_path / ".local").touch()
    code, out, _ = start("run", written(tmp_path, job(trainer=role(script("echo hi"))))).end()

    assert code == 0
    assert out.startswith("Warning: the logs of this run are not kept: ")
    assert out.splitlines()[0].endswith("; keep them with --logs DIR")
    assert "trainer-0 | hi\n" in out


def test_a_flood_can_be_interrupted(start: Start, tmp_path: Path) -> None:
    program = start("run", written(tmp_path, job(trainer=role(["yes"], grace=1))))
    program.until(lambda line: line == "trainer-0 | y\n")
    program.send(signal.SIGINT)
    code, out, _ = program.end()

    assert code == 130
    shown = out.count("trainer-0 | y\n")
    assert (kept(out) / "job-trainer-0.aitj-main.0.log").stat().st_size in (2 * shown, 2 * shown - 1)


def test_a_run_can_be_read_by_a_script(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("echo hello; exit 3"))))
    code, out, err = start("run", file, "--format", "json").end()
    found = [json.loads(line) for line in out.splitlines()]
    *_, verdict, end = found

    assert (code, err) == (1, "")
    assert {"phase", "event", "verdict", "end"} == {each["type"] for each in found}
    assert (verdict["job"], verdict["outcome"], verdict["phase"]) == ("aitrainingjob/job", "failed", "Failed")
    assert [(each["name"], each["why"]) for each in verdict["replicas"]] == [("trainer-0", "exit code 3")]
    assert end["exitCode"] == 1
    assert [path.read_text() for path in Path(end["logs"]).iterdir()] == ["hello\n"]
