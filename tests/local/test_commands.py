"""The commands for people against a local cluster: list, status, scale, suspend, resume, delete."""

import json
from pathlib import Path
from typing import Any

from tests.local.cluster import AITJ, DIJOB, client_of, create, until_ended, until_running
from tests.local.conftest import Start, Up
from tests.local.program import job, role, script, serial

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
        assert "exitcode 3" in rows["aitrainingjob", "crash"]["message"]

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


def test_a_cluster_without_jobs_says_so(up: Up, state: Path, start: Start) -> None:
    up()
    code, out, err = start("list", "--state", str(state)).end()

    assert (code, out, err) == (0, "", "there are no jobs in the local cluster\n")
