"""The same program, run again and again on a cluster that keeps its jobs."""

import json
from pathlib import Path

from tests.local.conftest import Start, Up
from tests.local.program import job, role, written


def test_a_program_that_runs_again_gets_a_name_that_is_free(up: Up, state: Path, start: Start) -> None:
    up()
    cluster = ("--kubeconfig", str(state / "kubeconfig"))
    first, second = (start("run", *cluster, "--", "sh", "-c", "echo hi").end() for _ in range(2))

    assert (first[0], first[2]) == (second[0], second[2]) == (0, "")
    assert "aitrainingjob/sh exists; this job is aitrainingjob/sh-2\n" in second[1]
    assert "exists" not in first[1]
    listed = json.loads(start("list", "--format", "json", "--state", str(state)).end()[1])
    assert {row["name"] for row in listed} == {"sh", "sh-2"}


def test_a_manifest_and_a_given_name_keep_it_and_the_refusal_has_the_command(
    up: Up, state: Path, start: Start, tmp_path: Path
) -> None:
    up()
    cluster = ("--kubeconfig", str(state / "kubeconfig"))
    file = written(tmp_path, job("mnist", worker=role(["true"])))
    assert start("run", *cluster, file).end()[0] == start("run", *cluster, "--name", "x", "--", "true").end()[0] == 0
    of_file, of_name = start("run", *cluster, file).end(), start("run", *cluster, "--name", "x", "--", "true").end()

    delete = f"trainmaster delete aitrainingjob/mnist --kubeconfig {state / 'kubeconfig'}"
    assert (of_file[0], of_name[0]) == (2, 2)
    assert f"; delete it with `{delete}`, or give this one another name\n" in of_file[2]
    assert "; delete it with `trainmaster delete aitrainingjob/x --kubeconfig " in of_name[2]
    assert of_name[2].endswith("`, or choose another --name\n")
