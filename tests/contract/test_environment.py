"""`make contract`: how it finds Pythons, when it installs, and what it calls a success."""

from pathlib import Path

import pytest

from tests.contract import environment as environments
from tests.contract.__main__ import outcome_of
from tests.contract.environment import CLIENTS, Client, InstallFailed, NoPython, environment, find_python


def script(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def a_python(folder: Path, *, pip: str) -> Path:
    """A Python 3.8 whose virtual environments have a pip that does this."""
    makes = f"mkdir -p $3/bin; printf '#!/bin/sh\\n{pip}\\n' > $3/bin/python; chmod +x $3/bin/python"
    return script(folder / "python", f"[ $1 = -c ] && echo 3.8 && exit; {makes}")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client that needs no packages."""
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(environments, "BUILD", tmp_path / "contract-build.txt")
    for name in ("contract-build.txt", "contract-nothing.txt"):
        (tmp_path / name).write_text("")
    return Client("nothing", "3.8", "TRAINMASTER_NOTHING_PYTHON", (), ())


# --- the Python ---


def test_the_variable_comes_before_the_path(tmp_path: Path) -> None:
    named = script(tmp_path / "named", "echo 3.8")
    script(tmp_path / "bin" / "python3.8", "echo 3.8")

    assert find_python("3.8", {"PYTHON38": str(named), "PATH": str(tmp_path / "bin")}) == named


def test_a_shim_without_its_version_is_passed_over_for_one_that_pyenv_has(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "python3.8", "echo 'pyenv: python3.8: command not found' >&2; exit 127")
    script(tmp_path / "bin" / "pyenv", f"echo {tmp_path}")
    found = script(tmp_path / "versions" / "3.8.18" / "bin" / "python3.8", "echo 3.8")

    assert find_python("3.8", {"PATH": str(tmp_path / "bin")}) == found


def test_a_missing_python_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoPython, match=r"pyenv install 3\.8.*make contract PYTHON38="):
        find_python("3.8", {"PATH": str(tmp_path)})


def test_a_variable_that_names_another_version_is_refused(tmp_path: Path) -> None:
    named = script(tmp_path / "named", "echo 3.12")

    with pytest.raises(NoPython, match=r"PYTHON38=.* is no Python 3\.8"):
        find_python("3.8", {"PYTHON38": str(named)})


# --- the environment ---


def test_an_environment_is_made_once_and_again_when_its_requirements_change(client: Client, tmp_path: Path) -> None:
    heard: list[str] = []
    environ = {"PYTHON38": str(a_python(tmp_path, pip="exit 0"))}

    pythons = [environment(client, environ, say=heard.append, cache=tmp_path) for _ in range(2)]
    client.requirements.write_text("# changed\n")
    pythons.append(environment(client, environ, say=heard.append, cache=tmp_path))

    assert all(python.exists() for python in pythons)
    assert pythons[0] == pythons[1] != pythons[2]
    assert len(heard) == 2


def test_an_installation_that_failed_is_not_taken_for_an_environment(client: Client, tmp_path: Path) -> None:
    environ = {"PYTHON38": str(a_python(tmp_path, pip="echo no such package; exit 1"))}

    for _ in range(2):
        with pytest.raises(InstallFailed, match=r"see .*nothing-.*\.log"):
            environment(client, environ, say=lambda _: None, cache=tmp_path)
    (log,) = (tmp_path / "contract").glob("*.log")
    assert log.read_text() == "no such package\n"


def test_a_python_that_is_named_is_used_as_it_is(client: Client, tmp_path: Path) -> None:
    found = environment(client, {client.variable: "/opt/client/bin/python"}, say=lambda _: None, cache=tmp_path)

    assert found == Path("/opt/client/bin/python")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_has_pinned_requirements_and_tests(client: Client) -> None:
    lines = client.requirements.read_text().splitlines()

    assert all("==" in line for line in lines if line and not line.startswith(("#", " ")))
    assert any("--hash=sha256:" in line for line in lines)
    assert all((environments.REQUIREMENTS.parent / test).exists() for test in client.tests)


# --- the summary ---


@pytest.mark.parametrize(
    ("cases", "code", "message", "is_good"),
    [
        pytest.param('<testcase name="a"/>', 0, "1 passed", True, id="passed"),
        pytest.param(
            '<testcase name="a"/><testcase name="b"><skipped message="no torch"/></testcase>',
            0,
            "1 passed, 1 skipped (no torch)",
            False,
            id="skipped",
        ),
        pytest.param(
            '<testcase name="a"><failure/></testcase><testcase name="b"><error/></testcase>',
            1,
            "0 passed, 2 failed (a, b)",
            False,
            id="failed",
        ),
        pytest.param("", 0, "0 passed", False, id="no-test"),
    ],
)
def test_a_client_is_good_when_all_of_its_tests_ran_and_passed(
    cases: str, code: int, message: str, is_good: bool
) -> None:
    assert outcome_of(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", code) == (message, is_good)


def test_a_run_without_a_report_is_no_success() -> None:
    assert outcome_of("", 2) == ("pytest ended with code 2 and without a report", False)
