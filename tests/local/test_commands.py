"""The commands for people against a local cluster: list, status, why, logs, scale, suspend, resume, delete."""

import json
import re
from pathlib import Path
from typing import Any

from tests.local.cluster import AITJ, DIJOB, client_of, create, until, until_ended, until_phase, until_running
from tests.local.conftest import Start, Up
from tests.local.program import job, python, role, script, serial
from tests.manifests.build import container, ditask, task, template
from trainmaster.local.deleted_log import deleted_pods

SLEEPS = script("echo ready; exec sleep 600")


class Typed:
    """``trainmaster COMMAND`` against the cluster of this folder."""

    def __init__(self, start: Start, state: Path) -> None:
        self._start, self._state = start, state

    def __call__(self, *args: str) -> str:
        """What a command that succeeds prints."""
        code, out, err = self._start(*args, "--state", str(self._state)).end()
        assert (code, err) == (0, ""), (out, err)
        return out

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "--format", "json"))

    def error(self, *args: str) -> str:
        code, out, err = self._start(*args, "--state", str(self._state)).end()
        assert (code, out) == (1, "")
        return err


async def test_jobs_are_listed_changed_and_deleted(up: Up, state: Path, start: Start) -> None:
    up()
    typed = Typed(start, state)
    async with client_of(state) as cluster:
        await create(cluster, job("long", trainer=role(SLEEPS, 2), ps=role(SLEEPS)))
        await create(cluster, job("crash", worker=role(script("exit 3"))))
        await create(cluster, serial(script("echo hi"), "long"))
        await until_ended(cluster, AITJ, "crash")
        await until_ended(cluster, DIJOB, "long")
        await until_running(cluster, 3)
        rows = {(row["kind"], row["name"]): row for row in typed.json("list")}
        assert {key: (row["phase"], row["ready"], row["total"]) for key, row in rows.items()} == {
            ("aitrainingjob", "crash"): ("Failed", 0, 1),
            ("aitrainingjob", "long"): ("Running", 3, 3),
            ("dijob", "long"): ("Succeeded", 0, 1),
        }
        assert "exited with code 3" in rows["aitrainingjob", "crash"]["message"]

        assert "long is ambiguous in namespace default: there are dijob/long and aitrainingjob/long" in typed.error(
            "status", "long"
        )
        assert "there is no job other in the local cluster; jobs: default/crash, " in typed.error("status", "other")
        shown = typed.json("status", "aitj/long")
        assert [(r["name"], r["state"]) for r in shown["replicas"]] == [
            ("ps-0", "Running"),
            ("trainer-0", "Running"),
            ("trainer-1", "Running"),
        ]
        assert "trainer-1  Running  0 " in typed("status", "aitj/long")

        said = typed("scale", "aitj/long", "3", "--role", "trainer")
        assert said == "aitrainingjob/long in namespace default of the local cluster has 3 replicas of trainer now\n"
        await until_running(cluster, 4)
        typed("suspend", "aitj/long")
        await until_running(cluster, 0)
        assert typed.json("status", "aitj/long")["phase"] == "Suspended"
        typed("resume", "aitj/long")
        await until_running(cluster, 4)
        assert "aitrainingjob/crash has ended with Failed and cannot change any more" in typed.error(
            "suspend", "default/crash"
        )
        typed("delete", "aitj/long")
        await until_running(cluster, 0)
        assert {row["name"] for row in typed.json("list", "-n", "default") if row["kind"] == "aitrainingjob"} == {
            "crash"
        }


async def test_the_tasks_of_a_dijob_are_roles(up: Up, state: Path, start: Start) -> None:
    up()
    typed = Typed(start, state)
    once = "test -e again || { touch again; echo first; exit 3; }; echo second; exec sleep 600"
    learner, collector = (
        task(type_, container(command=c)) for type_, c in (("learner", script(once)), ("collector", SLEEPS))
    )
    async with client_of(state) as cluster:
        await create(cluster, ditask("rl", learner, collector))
        await create(cluster, serial(SLEEPS, "old"))
        await until_running(cluster, 3)
        start("logs", "rl", "--follow", "--role", "learner", "--state", str(state)).until(
            lambda line: line == "learner-0 | second\n"
        )
        await until_phase(cluster, DIJOB, "rl", "Running")
        rows = {row["name"]: row for row in typed.json("list")}
        assert {name: (row["kind"], row["phase"], row["ready"], row["total"]) for name, row in rows.items()} == {
            "rl": ("dijob", "Running", 2, 2),
            "old": ("dijob", "Running", 1, 1),
        }
        assert rows["rl"]["restarts"] == 1
        lines = typed("why", "rl").splitlines()
        assert lines[0] == "dijob/rl is Running: 2 of 2 replicas run; job is running since all replicas are ready."
        assert lines[1].startswith("1 restart before, the last: learner-0 exited with code 3 on node local ")

        said = typed("scale", "rl", "2")
        assert said == "dijob/rl in namespace default of the local cluster has 2 replicas of collector now\n"
        await until_running(cluster, 4)
        typed("scale", "rl", "2", "--role", "learner")
        await until_running(cluster, 5)
        assert [replica["name"] for replica in typed.json("status", "rl")["replicas"]] == [
            "collector-0",
            "collector-1",
            "learner-0",
            "learner-1",
        ]
        assert typed("logs", "rl", "--role", "collector").splitlines() == ["collector-0 | ready", "collector-1 | ready"]
        assert "spec.replicas" in typed.error("scale", "rl", "0")


def test_a_cluster_without_jobs_says_so(up: Up, state: Path, start: Start) -> None:
    up()
    code, out, err = start("list", "--state", str(state)).end()

    assert (code, out, err) == (0, "", "there are no jobs in the local cluster\n")


# --- logs ---

COUNTS = script("for i in 1 2 3; do echo line $i; sleep 0.2; done")


async def test_logs_are_followed_before_there_are_pods_until_the_job_has_ended(
    up: Up, state: Path, start: Start
) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, job(spec={"suspend": True}, trainer=role(COUNTS, 2), ps=role(COUNTS)))
        following = start("logs", "job", "--follow", "--role", "trainer", "--state", str(state))
        Typed(start, state)("resume", "job")
        code, out, err = following.end()

    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == sorted(
        f"trainer-{replica} | line {line}" for replica in (0, 1) for line in (1, 2, 3)
    )


async def test_logs_have_the_last_lines_or_all_of_them(up: Up, state: Path, start: Start) -> None:
    up()
    typed = Typed(start, state)
    async with client_of(state) as cluster:
        await create(cluster, job(trainer=role(script(r"seq 1 300; printf 'a\rb\n'; exec sleep 600"))))
        await until_running(cluster, 1)
        start("logs", "job", "--follow", "--state", str(state)).until(lambda line: line == "trainer-0 | b\n")

        assert typed("logs", "job").splitlines() == [*(f"trainer-0 | {n}" for n in range(202, 301)), "trainer-0 | b"]
        assert len(typed("logs", "job", "--all").splitlines()) == 301
        assert "has no pod of ps; it has pods of trainer" in typed.error("logs", "job", "--role", "ps")
        assert "has no container that was restarted" in typed.error("logs", "job", "--previous")


async def test_the_logs_of_a_job_that_has_ended_are_followed_to_their_end(up: Up, state: Path, start: Start) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, job(spec={"cleanPodPolicy": "None"}, trainer=role(script("echo done"))))
        await until_ended(cluster, AITJ, "job")

    assert Typed(start, state)("logs", "job", "--follow") == "trainer-0 | done\n"


async def test_logs_have_the_run_before_a_restart_in_the_pod(up: Up, state: Path, start: Start) -> None:
    up()
    typed = Typed(start, state)
    again = script("echo run; test -e again || { touch again; exit 130; }; echo waits; exec sleep 600")
    worker = {
        "mxReplicaType": "WORKER",
        "template": template(container("mxnet", command=again), restartPolicy="OnFailure"),
    }
    manifest = {
        "apiVersion": "mxnet.mlkube.io/v1beta1",
        "kind": "MxJob",
        "metadata": {"name": "job"},
        "spec": {"jobMode": "local", "replicaSpecs": [worker]},
    }
    async with client_of(state) as cluster:
        await create(cluster, manifest)
        start("logs", "job", "-f", "--state", str(state)).until(lambda line: line.endswith("waits\n"))

    assert typed("logs", "job", "--previous") == "worker-0 | run\n"
    assert typed("logs", "job") == "worker-0 | run\nworker-0 | waits\n"
    assert typed("logs", "job", "--all") == "worker-0 | run\nworker-0 | run\nworker-0 | waits\n"


async def test_the_logs_of_deleted_pods_are_kept(up: Up, state: Path, start: Start) -> None:
    """A job that restarts all its pods once, and whose pods are deleted at its end."""
    up()
    typed = Typed(start, state)
    again = script("echo run $TRAININGJOB_REPLICA_RESTARTCOUNT; test -e again || { touch again; exit 130; }; echo end")
    policy: dict[str, Any] = {"restartPolicy": "OnFailure", "restartScope": "All", "restartBackoffSeconds": 0}
    async with client_of(state) as cluster:
        await create(cluster, job(spec={"cleanPodPolicy": "All"}, trainer=role(again, **policy)))
        await until_ended(cluster, AITJ, "job")
        await until(lambda: len(deleted_pods(state / "node")) == 2)

    first, last = ["trainer-0 | run 0"], ["trainer-0 | run 1", "trainer-0 | end"]
    assert typed("logs", "job").splitlines() == last
    assert typed("logs", "job", "--previous").splitlines() == first
    assert typed("logs", "job", "--all").splitlines() == first + last
    assert "has no pod of ps" in typed.error("logs", "job", "--role", "ps")


# --- why ---

FIRST = """
import os, sys, time
if os.environ["TRAININGJOB_REPLICA_INDEX"] != "2":
    while not os.path.exists("failed"):
        time.sleep(0.05)
    time.sleep(1.1)  # the times of the API are whole seconds
    sys.exit("peer closed")
open("failed", "w").close()
raise ValueError("loss is NaN")
"""


SILENT = "import sys; print('step 1'); sys.stdout.write('no end of line'); sys.stdout.flush(); {}"
WHERE = "; with PYTHONFAULTHANDLER=1 in its environment Python prints where"
ENDS = {
    "segfault": (
        "os.kill(os.getpid(), 11)",
        f"was killed by SIGSEGV (139){WHERE}; its last line was: no end of line",
    ),
    "killed": (
        "os.kill(os.getpid(), 9)",
        "was killed by SIGKILL (137), mostly by the kernel's OOM killer; its last line was: no end of line",
    ),
    "memory": (
        "x = bytearray(2**28); time.sleep(60)",
        "ran out of memory (OOMKilled, exit code 137) at its limit of 100Mi",
    ),
}


async def test_why_has_the_output_of_pods_that_are_deleted(up: Up, state: Path, start: Start) -> None:
    up()
    typed = Typed(start, state)
    async with client_of(state) as cluster:
        for name, (end, _) in ENDS.items():
            worker = role(python(f"import os, time; {SILENT.format(end)}"))
            limits = {"limits": {"memory": "100Mi"}}
            worker["template"]["spec"]["containers"][0]["resources"] = limits
            await create(cluster, job(name, worker=worker))
        for name in ENDS:
            await until_ended(cluster, AITJ, name)
        await until_running(cluster, 0)

    for name, (_, how) in ENDS.items():
        first, *rest = typed("why", name).splitlines()
        assert first.endswith(f"ago: worker-0 (pod {name}-worker-0, node local) {how}")
        assert rest[0] == "  | step 1"
        assert typed.json("status", name)["replicas"] == []


async def test_why_names_the_first_cause(up: Up, state: Path, start: Start) -> None:
    up()
    typed = Typed(start, state)
    none: dict[str, Any] = {"cleanPodPolicy": "None", "failPolicy": "All"}
    volumes = [{"name": "data", "configMap": {"name": "nope"}}]
    mount = job("mount", worker=role(script("exit")))
    mount["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["volumes"] = volumes
    async with client_of(state) as cluster:
        await create(cluster, job("first", spec=none, worker=role(python(FIRST), 4, failPolicy="All")))
        await create(cluster, job("gone", worker=role(python("import os; os.kill(os.getpid(), 9)"))))
        await create(cluster, job("wrong", worker=role(["no-such-program"])))
        await create(cluster, mount)
        for name in ("first", "gone", "wrong"):
            await until_ended(cluster, AITJ, name)

    lines = typed("why", "first").splitlines()
    assert re.fullmatch(
        r"aitrainingjob/first has failed \d+s ago: worker-2 \(pod first-worker-2, node local\) exited with code 1: "
        "ValueError: loss is NaN",
        lines[0],
    )
    assert "3 more pods failed after it" in lines
    assert lines[-1] == f"type: trainmaster logs aitrainingjob/first --role worker --all --state {state}"

    gone = typed("why", "gone").splitlines()[0]
    assert gone.endswith("node local) was killed by SIGKILL (137), mostly by the kernel's OOM killer")
    assert (
        typed("why", "wrong")
        .splitlines()[0]
        .endswith('(StartError): exec: "no-such-program": executable file not found in $PATH')
    )
    assert ': FailedMount: MountVolume.SetUp failed for volume "data" : configmap "nope" not found\n' in typed(
        "why", "mount"
    )
