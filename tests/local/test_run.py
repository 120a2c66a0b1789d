"""`trainmaster run`: jobs to their end on this machine, as a user types it."""

import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.local.conftest import Start
from tests.local.program import containers_of, job, python, role, script, serial, written
from tests.manifests.build import Manifest, container, template

LISTENS = """
import os, socket, sys
server = socket.create_server(("", int(os.environ["TRAININGJOB_PORTS"])))
while True:
    peer, _ = server.accept()
    peer.sendall(b"parameters\\n")
    peer.close()
"""
CONNECTS = """
import os, socket, sys, time
host, port = os.environ["PS_HOSTS"].split(":")
for attempt in range(600):
    try:
        peer = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
print(peer.makefile().readline().strip(), "from", host, flush=True)
"""


SAVES = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def lines_of(output: str, label: str) -> list[str]:
    """What a replica said."""
    return [
        text for line in output.splitlines() for name, bar, text in [line.partition(" | ")] if name.strip() == label
    ]


def logs_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def connecting(trainers: int) -> Manifest:
    """A parameter server, and trainers that ask it for the parameters."""
    server = role(python(LISTENS), ports=(7164,), completePolicy="None")
    return job(spec={"completePolicy": "Any"}, ps=server, trainer=role(python(CONNECTS), trainers))


# --- how it ends ---


def test_a_job_that_succeeds_ends_with_0_and_leaves_nothing(start: Start, tmp_path: Path) -> None:
    server, trainer = role(script("echo serving; sleep 600"), completePolicy="None"), role(script("echo hi"), 2)
    file = written(tmp_path, job(spec={"completePolicy": "Any"}, ps=server, trainer=trainer))
    code, out, err = start("run", file).end()

    assert (code, err) == (0, "")
    assert lines_of(out, "trainer-0") == lines_of(out, "trainer-1") == ["hi"]
    assert set(lines_of(out, "ps-0")) <= {"serving"}  # it may be told to stop before it has begun
    assert re.search(r"^aitrainingjob/job Succeed: ", out, re.MULTILINE)
    assert containers_of(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [".local", "job.yaml"]  # only the logs


def test_a_failed_job_exits_with_1_and_a_reason(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("echo oh; exit 3"))))
    code, out, err = start("run", file).end()

    assert (code, err) == (1, "")
    assert lines_of(out, "trainer-0") == ["oh"]
    assert "aitrainingjob/job trainer-0 Failed: exit code 3\n" in out
    assert re.search(
        r"^aitrainingjob/job Failed: trainer-0 \(pod job-trainer-0, node local\) exited with code 3", out, re.MULTILINE
    )


def test_one_job_of_several_that_fails_is_enough(start: Start, tmp_path: Path) -> None:
    jobs = [serial(script("exit 0"), "good"), serial(script("exit 1"), "bad")]
    code, out, _ = start("run", written(tmp_path, *jobs)).end()

    assert code == 1
    assert re.search("^dijob/good Succeeded: ", out, re.MULTILINE)
    assert re.search("^dijob/bad Failed: ", out, re.MULTILINE)


def test_a_program_that_is_not_on_this_machine_is_named(start: Start, tmp_path: Path) -> None:
    code, out, _ = start("run", written(tmp_path, job(trainer=role(["no-such-program"])))).end()

    assert code == 1
    assert re.search(r'trainer-0 Failed: .*"no-such-program": executable file not found', out)


def test_time_that_is_up_ends_with_124(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("exec sleep 600"))))
    code, out, err = start("run", file, "--timeout", "2s").end()

    assert (code, err) == (124, "")
    assert re.search(r"^timed out, stopping: pods have \d+ s to end$", out, re.MULTILINE)
    assert containers_of(tmp_path) == []


# --- Ctrl-C ---


def test_ctrl_c_lets_the_pods_finish(start: Start, tmp_path: Path) -> None:
    program = start("run", written(tmp_path, job(trainer=role(python(SAVES), 2))))
    for _ in range(2):
        program.until(lambda line: line.endswith("ready\n"))
    program.send(signal.SIGINT)
    code, out, err = program.end()

    assert (code, err) == (130, "")
    assert "stopping: pods have 30 s to end; Ctrl-C again kills them at once\n" in out
    assert lines_of(out, "trainer-0") == lines_of(out, "trainer-1") == ["ready", "saved"]
    assert containers_of(tmp_path) == []


def test_ctrl_c_twice_kills_at_once(start: Start, tmp_path: Path) -> None:
    stubborn = script("trap '' TERM; echo ready; while :; do sleep 600; done")
    program = start("run", written(tmp_path, job(trainer=role(stubborn, grace=900))))
    program.until(lambda line: line.endswith("ready\n"))
    program.send(signal.SIGINT)
    program.until(lambda line: line.startswith("stopping: pods have 900 s"))
    program.send(signal.SIGINT)
    code, _, err = program.end()

    assert (code, err) == (130, "")
    assert containers_of(tmp_path) == []


LAST_WORDS = """
import signal, sys, time
def stop(*_):
    print("stopping", flush=True)
    sys.stdout.write("no end")
    sys.exit()
signal.signal(signal.SIGTERM, stop)
print("ready")
while True:
    time.sleep(60)
"""


def last_words() -> Manifest:
    """A replica that prints when it is stopped, after an init container that prints nothing."""
    body = role(python(LAST_WORDS))
    body["template"]["spec"]["initContainers"] = [container("silent", command=["true"])]
    return body


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_what_programs_print_while_they_are_stopped_is_shown_and_logged(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    program = start("run", written(tmp_path, job(trainer=last_words())), "--logs", "logs")
    program.until(lambda line: line.endswith("ready\n"))
    program.send(number)
    code, out, _ = program.end()

    assert code == 128 + number
    assert lines_of(out, "trainer-0/aitj-main") == ["ready", "stopping", "no end"]
    assert logs_of(tmp_path / "logs") == {
        "job-trainer-0.aitj-main.0.log": b"ready\nstopping\nno end",
        "job-trainer-0.silent.0.log": b"",
    }


def test_what_programs_print_before_and_while_the_time_is_up_is_shown_and_logged(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=last_words()))
    code, out, _ = start("run", file, "--timeout", "10s", "--logs", "logs").end()

    assert code == 124
    assert lines_of(out, "trainer-0/aitj-main") == ["ready", "stopping", "no end"]
    assert logs_of(tmp_path / "logs") == {
        "job-trainer-0.aitj-main.0.log": b"ready\nstopping\nno end",
        "job-trainer-0.silent.0.log": b"",
    }


def test_a_line_without_end_is_shown_and_logged_when_its_program_is_killed(start: Start, tmp_path: Path) -> None:
    stubborn = script(r"trap '' TERM; printf 'ready\nno end'; while :; do sleep 600; done")
    program = start("run", written(tmp_path, job(trainer=role(stubborn, grace=900))), "--logs", "logs")
    program.until(lambda line: line.endswith("ready\n"))
    program.send(signal.SIGINT)
    program.until(lambda line: line.startswith("stopping: pods have 900 s"))
    program.send(signal.SIGINT)
    code, out, _ = program.end()

    assert code == 130
    assert lines_of(out, "trainer-0") == ["ready", "no end"]
    assert logs_of(tmp_path / "logs") == {"job-trainer-0.aitj-main.0.log": b"ready\nno end"}


# --- what is given ---


def test_a_bad_manifest_ends_with_2_and_starts_nothing(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, {**serial(script("exit")), "kind": "DiJob"})
    code, out, err = start("run", file).end()

    assert (code, out) == (2, "")
    assert err.startswith(
        f"trainmaster: {file}, document 1: kind DiJob (diengine.opendilab.org/v1alpha1) is not supported"
    )
    assert err.count("\n") == 1


def test_what_the_api_refuses_ends_with_2(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, serial(script("exit"), "fine"), job(trainer=role(script("exit"), -1)))
    code, _, err = start("run", file).end()

    assert code == 2
    assert re.match(r"trainmaster: .*job\.yaml, document 2: .*spec\.replicaSpecs\.trainer\.replicas", err)
    assert err.count("\n") == 1
    assert containers_of(tmp_path) == []


def test_an_invalid_namespace_is_an_error_with_its_place(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, serial(script("exit")))
    code, _, err = start("run", file, "--namespace", "No_Good").end()

    assert code == 2
    assert err.startswith(f'trainmaster: {file}, document 1: create namespaces No_Good: Namespace "No_Good" is invalid')


def test_what_admission_refuses_ends_with_2_and_its_reason(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("exit"), 9999, ports=(7164,))))
    code, out, err = start("run", file).end()

    assert (code, out) == (2, "")
    assert "spec.replicaSpecs.trainer.replicas: 9999 addresses do not fit into one environment variable" in err
    assert err.count("\n") == 1


def test_warnings_of_admission_are_shown_and_the_job_runs(start: Start, tmp_path: Path) -> None:
    learner = {"template": template(container(command=["true"]))}
    file = written(tmp_path, serial(script("exit"), learner=learner))
    code, out, _ = start("run", file).end()

    assert code == 0
    said = "spec.collector: is missing beside spec.learner; a collector that the job asks for has no template"
    assert f"Warning: {file}, document 1: dijob/job: {said}\n" in out


def test_values_can_be_set(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("echo $TRAININGJOB_REPLICA_INDEX of $TRAINER_INSTANCES_NUM"))))
    code, out, _ = start("run", file, "--set", "spec.replicaSpecs.trainer.replicas=3").end()

    assert code == 0
    assert [lines_of(out, f"trainer-{index}") for index in range(3)] == [[f"{index} of 3"] for index in range(3)]


def test_what_pods_refer_to_is_created_first_in_the_namespace_that_was_asked_for(start: Start, tmp_path: Path) -> None:
    reads = serial(script("echo $COLOUR in $(cat /proc/self/environ | tr '\\0' '\\n' | grep -c COLOUR)"))
    reads["spec"]["coordinator"]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "paint"}}]
    paint = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "paint"}, "data": {"COLOUR": "blue"}}
    code, out, _ = start("run", written(tmp_path, reads, paint), "--namespace", "ml").end()

    assert code == 0
    assert lines_of(out, "coordinator") == ["blue in 1"]


# --- logs ---


def test_output_that_python_would_buffer_is_shown_while_the_program_runs(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(python("import time; print('step 1'); time.sleep(600)"))))
    program = start("run", file)
    program.until(lambda line: line == "trainer-0 | step 1\n")
    program.send(signal.SIGINT)

    assert program.end()[0] == 130


def test_pythonunbuffered_of_the_template_wins_over_the_node(start: Start, tmp_path: Path) -> None:
    neither, env, source = (role(script('echo "[$PYTHONUNBUFFERED]"')) for _ in range(3))
    env["template"]["spec"]["containers"][0]["env"] = [{"name": "PYTHONUNBUFFERED", "value": ""}]
    source["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "python"}}]
    data = {"PYTHONUNBUFFERED": "0"}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "python"}, "data": data}
    code, out, _ = start("run", written(tmp_path, job(neither=neither, env=env, source=source), settings)).end()

    assert code == 0
    assert [lines_of(out, f"{name}-0") for name in ("neither", "env", "source")] == [["[1]"], ["[]"], ["[0]"]]


def test_every_line_is_shown_once_also_of_pods_that_are_deleted_at_once(start: Start, tmp_path: Path) -> None:
    chatter = script("i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; printf 'no end'")
    code, out, _ = start("run", written(tmp_path, job(trainer=role(chatter, 4, completePolicy="All")))).end()

    assert code == 0
    for index in range(4):
        assert lines_of(out, f"trainer-{index}") == [*(f"line {number}" for number in range(500)), "no end"]


def test_logs_are_written_one_file_for_each_container(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("echo I am $TRAININGJOB_REPLICA_INDEX"), 2)))
    code, out, _ = start("run", file, "--logs", "logs").end()

    assert (code, out.splitlines()[-1]) == (0, "logs: logs")
    assert {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()} == {
        "job-trainer-0.aitj-main.0.log": "I am 0\n",
        "job-trainer-1.aitj-main.0.log": "I am 1\n",
    }


def test_a_progress_bar_is_shown_while_it_runs(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script(r"printf '\r 1 of 60' >&2; exec sleep 600"))))
    program = start("run", file)
    program.until(lambda line: line == "trainer-0 |  1 of 60\n")
    program.send(signal.SIGINT)
    code, out, _ = program.end()

    assert code == 130
    assert lines_of(out, "trainer-0") == [" 1 of 60"]


def test_log_files_have_the_bytes_of_the_program_and_one_for_a_silent_program(start: Start, tmp_path: Path) -> None:
    writes = python(r"import sys; sys.stdout.buffer.write(b'\xff\n\r1 of 2\r2 of 2\nno end')")
    file = written(tmp_path, job(silent=role(script("exit")), trainer=role(writes)))
    code, out, _ = start("run", file, "--logs", "logs").end()

    assert code == 0
    assert lines_of(out, "trainer-0") == ["\ufffd", "2 of 2", "no end"]
    assert logs_of(tmp_path / "logs") == {
        "job-silent-0.aitj-main.0.log": b"",
        "job-trainer-0.aitj-main.0.log": b"\xff\n\r1 of 2\r2 of 2\nno end",
    }


def test_the_folder_of_a_run_can_be_kept(start: Start, tmp_path: Path) -> None:
    code, out, _ = start("run", written(tmp_path, serial(script("echo hi"))), "--keep").end()
    logs = Path(out.splitlines()[-1].removeprefix("logs: "))

    assert code == 0
    assert [path.read_text() for path in logs.iterdir()] == ["hi\n"]
    assert '"event":"ready"' in (logs.parent / "operator.log").read_text()


def test_lines_of_several_jobs_are_distinguished(start: Start, tmp_path: Path) -> None:
    jobs = [serial(script("echo a"), "one"), serial(script("echo b"), "two")]
    _, out, _ = start("run", written(tmp_path, *jobs)).end()

    assert Counter(line for line in out.splitlines() if " | " in line) == Counter(
        ["one-coordinator | a", "two-coordinator | b"]
    )


# --- peers ---


def test_trainers_reach_the_parameter_server_by_the_name_in_their_environment(start: Start, tmp_path: Path) -> None:
    code, out, _ = start("run", written(tmp_path, connecting(2))).end()

    assert code == 0
    assert lines_of(out, "trainer-0") == lines_of(out, "trainer-1") == ["parameters from job-ps-0.default"]


def test_two_runs_beside_each_other_do_not_meet(start: Start, tmp_path: Path) -> None:
    file = written(tmp_path, connecting(1))
    programs = [start("run", file) for _ in range(2)]

    assert [program.end()[0] for program in programs] == [0, 0]


def test_a_reader_that_goes_away_ends_the_run(start: Start, tmp_path: Path) -> None:
    """As in `trainmaster run job.yaml | head -1`."""
    program = start("run", written(tmp_path, serial(script("while :; do echo tick; sleep 0.1; done"))))
    program.until(lambda line: line.endswith("tick\n"))
    program.stop_reading()

    assert program.end() == (141, program.output, "")
    assert containers_of(tmp_path) == []
