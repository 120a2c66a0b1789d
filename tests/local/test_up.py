"""`trainmaster up` and `down`: a local cluster that stays."""

import json
import signal
from pathlib import Path

from tests.local.cluster import AITJ, DIJOB, client_of, create, until_ended, until_running
from tests.local.conftest import Start, Up
from tests.local.program import containers_of, job, python, role, script, serial
from trainmaster.core.ids import Key
from trainmaster.local.state import is_state

SLEEPS = script("echo ready; exec sleep 600")


# --- a life ---


async def test_a_job_that_is_applied_runs_to_its_end(up: Up, state: Path, start: Start) -> None:
    program = up()
    async with client_of(state) as cluster:
        await create(cluster, serial(script("echo hi")))
        assert (await until_ended(cluster, DIJOB, "job"))["verdict"] == "Succeeded"
    down = start("down", "--state", str(state)).end()

    assert down == (0, "stopped\n", "")
    assert program.end()[0] == 0
    assert f"export KUBECONFIG={state}/kubeconfig" in program.output


async def test_ctrl_c_ends_the_processes_and_keeps_the_objects(up: Up, state: Path) -> None:
    program = up()
    async with client_of(state) as cluster:
        await create(cluster, job(trainer=role(SLEEPS, 2)))
        before = await until_running(cluster, 2)
    program.send(signal.SIGINT)
    code, out, _ = program.end()
    assert code == 0
    assert "ending 2 containers" in out
    assert containers_of(state) == []

    up()
    async with client_of(state) as cluster:
        job_now = json.loads(await cluster.get(AITJ, Key("default", "job")))
        assert job_now["metadata"]["name"] == "job"
        # The node ended its pods: what that means is the job's own policy.
        assert (await until_ended(cluster, AITJ, "job"))["verdict"] == "Failed"
        status = json.loads(await cluster.get(AITJ, Key("default", "job")))["status"]
        assert "exitCode" not in status["failure"]
        assert "pod job-trainer-0 failed: Terminated, the local cluster was stopped (node local)" in next(
            each["message"] for each in status["conditions"] if each["type"] == "Finished"
        )
    assert set(before) == {"job-trainer-0", "job-trainer-1"}


async def test_ctrl_c_twice_does_not_wait_for_stubborn_programs(up: Up, state: Path) -> None:
    stubborn = python("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)")
    program = up()
    async with client_of(state) as cluster:
        await create(cluster, serial(stubborn))
        await until_running(cluster, 1)
    program.send(signal.SIGINT)
    program.until(lambda line: line.startswith("ending 1 containers"))
    program.send(signal.SIGINT)

    assert program.end()[0] == 0
    assert containers_of(state) == []


# --- down ---


async def test_down_ends_what_a_killed_cluster_left_behind_and_purges(up: Up, start: Start, state: Path) -> None:
    program = up()
    async with client_of(state) as cluster:
        await create(cluster, serial(SLEEPS))
        await until_running(cluster, 1)
    program.kill()
    code, out, err = start("down", "--state", str(state), "--purge").end()

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "nothing was running",
        "ending 1 remaining containers: they have 30 s",
        f"removed {state}",
    ]
    assert containers_of(state) == []
    assert is_state(state) is False


def test_down_without_a_state_folder_is_an_error(start: Start, tmp_path: Path) -> None:
    code, out, err = start("down", "--state", str(tmp_path)).end()

    assert (code, out) == (1, "")
    assert err == (f"trainmaster: {tmp_path} is not a state folder: no cluster was started there; give --state DIR\n")
