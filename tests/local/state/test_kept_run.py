"""The folders in which logs of the last runs are kept."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainmaster.local.kept_run import kept_run, prune
from trainmaster.local.state import open_state

START = datetime(2026, 11, 17, 9, 30, 5, tzinfo=UTC)


def ran(folder: Path, name: str = "job", *, second: int = 0, text: str = "hello") -> Path:
    with kept_run(folder, name, START + timedelta(seconds=second)) as run:
        (run / "log").write_text(text)
    return run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "runs").iterdir())


def test_a_run_has_a_private_folder_with_its_time_and_name(tmp_path: Path) -> None:
    run = ran(tmp_path / "new", "mnist")

    assert run == tmp_path / "new" / "runs" / "2026-11-17T093005-mnist"
    assert (run / "log").read_text() == "hello"
    assert [path.stat().st_mode & 0o777 for path in (run, run.parent, run.parent.parent)] == [0o700] * 3


def test_runs_of_one_second_do_not_meet(tmp_path: Path) -> None:
    assert ran(tmp_path) != ran(tmp_path)


def test_a_run_without_logs_leaves_nothing(tmp_path: Path) -> None:
    with kept_run(tmp_path, "job", START):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"most_runs": 3}, ["2026-11-17T093008-job", "2026-11-17T093009-job"]),
        ({"most_bytes": 250}, ["2026-11-17T093008-job", "2026-11-17T093009-job"]),
        ({}, [f"2026-11-17T09300{second}-job" for second in range(5, 10)]),
    ],
    ids=["number", "size", "neither"],
)
def test_beyond_a_limit_the_oldest_runs_are_removed(tmp_path: Path, limits: dict[str, int], left: list[str]) -> None:
    for second in range(5):
        ran(tmp_path, second=second, text="x" * 100)
    prune(tmp_path / "runs", **limits)

    assert names(tmp_path) == left


def test_a_run_that_has_not_ended_is_not_removed(tmp_path: Path) -> None:
    with kept_run(tmp_path, "job", START) as run:
        (run / "log").touch()
        ran(tmp_path, second=1)
        prune(run.parent, most_runs=1)

        assert names(tmp_path) == [run.name]


def test_the_state_folder_of_a_local_cluster_may_have_logs_of_runs(tmp_path: Path) -> None:
    ran(tmp_path)
    with open_state(tmp_path) as state:
        state.purge()

    assert names(tmp_path) == ["2026-11-17T093005-job"]
