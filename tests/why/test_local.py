"""`trainmaster why` names the cause of every failure of the table, in local mode, also when the pods are deleted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.cluster import client_of
from tests.local.program import Program, containers_of
from tests.why.asking import CLEANED, KEPT, Answers, Asking, report
from tests.why.table import TABLE, Failure
from trainmaster.local.node.process import send

pytestmark = pytest.mark.timeout(900)
"""The first test waits for all failures."""

CELLS = [
    pytest.param(failure, policy, id=f"{failure.name}-{policy}")
    for failure in TABLE
    for policy in ((KEPT,) if failure.waits else (KEPT, CLEANED))
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    folder = tmp_path_factory.mktemp("why")
    state = folder / "state"
    program = Program("up", "--state", str(state), folder=folder)
    try:
        program.until(lambda line: "export KUBECONFIG=" in line)
        yield asyncio.run(_ask(state))
    finally:
        program.kill()
        for pid in containers_of(folder):
            send(pid, 10)  # SIGUSR1: the shim kills its container


async def _ask(state: Path) -> Answers:
    async with client_of(state) as cluster:
        return await Asking(cluster, state / "kubeconfig").ask_all(TABLE)


@pytest.mark.parametrize(("failure", "policy"), CELLS)
def test_the_first_line_names_the_cause(failure: Failure, policy: str, answers: Answers) -> None:
    error = answers[failure.name, policy].error(failure)

    assert not error, error


def test_the_figures(answers: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nlocal: {report(TABLE, answers)}")
