"""The first job of a user: from `trainmaster init`, or from a program without a manifest."""

import sys
from pathlib import Path

import pytest

from tests.local.conftest import Start
from tests.local.test_run import lines_of
from trainmaster.cli.init import OLD_DIJOB, starter_of
from trainmaster.client.kind_name import job_kinds


@pytest.mark.parametrize("kind", [*(each.name for each in job_kinds()), OLD_DIJOB])
def test_the_manifest_of_each_kind_runs_as_it_is(start: Start, tmp_path: Path, kind: str) -> None:
    (tmp_path / "job.yaml").write_text(starter_of(kind))
    code, out, err = start("run", "job.yaml", "--timeout", "2m").end()

    assert (code, err) == (0, ""), out


def test_the_replicas_of_a_dijob_print_their_ranks_and_addresses(start: Start, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(starter_of("dijob"))
    _, out, _ = start("run", "job.yaml", "--timeout", "2m").end()
    lines = [lines_of(out, replica) for replica in ("learner-0", "collector-0", "collector-1")]

    nodes = lines[0][0].rpartition(" ")[2]
    assert lines == [
        [f"learner, rank 0 of {nodes}"],
        [f"collector, rank 1 of {nodes}"],
        [f"collector, rank 2 of {nodes}"],
    ]
    assert [address.partition(".")[0] for address in nodes.split(",")] == [
        "my-training-learner-0",
        "my-training-collector-0",
        "my-training-collector-1",
    ]


def test_a_program_runs_without_a_manifest(start: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys; print(sys.argv[1:], os.environ['TRAININGJOB_REPLICA_NAME'], os.environ['LR'])"
    )
    options = ["--replicas", "2", "--env", "LR=0.1", "--role", "eval=1"]
    code, out, err = start("run", *options, "--", sys.executable, "train.py", "--fast").end()

    assert (code, err) == (0, ""), out
    for replica in ("worker-0", "worker-1", "eval-0"):
        assert lines_of(out, replica) == [f"['--fast'] {replica[:-2]} 0.1"]


def test_a_program_gets_its_arguments_as_they_were_typed(start: Start) -> None:
    code, out, _ = start("run", "--", "sh", "-c", "echo $(echo a)-$((1 + 1)); kill -9 $$").end()

    assert code == 1
    assert lines_of(out, "worker-0") == ["a-2"]
    assert "exit code 137" in out
