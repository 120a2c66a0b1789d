"""Tests that need a cluster are marked by themselves, and never pass or are skipped without one."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import namespace_name

ROOT = Path(__file__).parent.parent.parent


def pytest_run(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_binaries_a_cluster_test_fails_and_says_what_to_run(tmp_path: Path) -> None:
    done = pytest_run("tests/testbed/test_admin.py", "-k", "test_a_list_is_waited_for", cache=tmp_path)

    assert done.returncode == 1
    assert "run make testbed" in done.stdout
    assert "skipped" not in done.stdout


def test_a_test_that_reaches_the_plane_through_other_fixtures_is_marked(tmp_path: Path) -> None:
    marked = pytest_run("tests/testbed", "--collect-only", "-m", "cluster", cache=tmp_path).stdout
    others = pytest_run("tests/testbed", "--collect-only", "-m", "not cluster", cache=tmp_path).stdout

    assert "test_admin.py::test_a_list_is_waited_for" in marked
    assert "test_plane.py::test_stop_ends_every_process" in marked
    assert "test_admin.py::test_a_list_is_waited_for" not in others
    assert "test_build.py::test_what_is_built_is_not_built_again" in others


def test_a_namespace_is_named_by_number_and_test() -> None:
    assert namespace_name(7, "test_a_pod[x/Y-1]") == "t-7-a-pod-x-y-1"
    assert len(namespace_name(7, "test_" + "long_" * 30)) <= 40
