"""The plug-in that counts by suite."""

from pathlib import Path

import pytest

from tests.summary import lines_of, suite_of

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("nodeid", "suite"),
    [
        pytest.param("tests/kinds/mxjob/test_x.py::test_x", "kinds", id="a folder in a suite"),
        pytest.param("tests/kube/test_x.py::TestA::test_b[a/b]", "kube", id="slashes in a parameter"),
        pytest.param("tests/test_docs.py::test_x", "tests", id="no folder"),
    ],
)
def test_a_test_belongs_to_the_folder_under_tests(nodeid: str, suite: str) -> None:
    assert suite_of(nodeid) == suite


def test_only_passed_is_said_when_it_is_zero() -> None:
    outcomes = {"passed": ["tests/b/t.py::x", "tests/b/t.py::y"], "error": ["tests/a/t.py::x"]}

    assert lines_of(outcomes) == ["suite a: 0 passed, 1 errors", "suite b: 2 passed"]


def test_the_last_line_of_pytest_stays_the_last(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for suite, body in {"one": "assert True", "two": "assert False"}.items():
        file = pytester.mkpydir(suite) / f"test_{suite}.py"
        file.write_text(f"import pytest\ndef test_it(): {body}\n@pytest.mark.skip\ndef test_not(): ...\n")

    result = pytester.runpytest_subprocess("-q", "-p", "tests.summary", "-p", "no:cacheprovider")

    assert result.outlines[-3] == "suite one: 1 passed, 1 skipped"
    assert result.outlines[-2] == "suite two: 0 passed, 1 failed, 1 skipped"
    assert result.outlines[-1].startswith("1 failed, 1 passed, 2 skipped in ")
