"""A new user types each command of the README and of the first hour, and sees what these say."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.operator import REPOSITORY
from testbed.plane import ControlPlane
from tests.newcomer.document import Command, SavedFile, steps
from tests.newcomer.reader import Reader

README = REPOSITORY / "README.md"
WALKS = (README, REPOSITORY / "docs" / "start.md")
ON_A_CLUSTER = "On a cluster"
INSTALL = ("make install", 'export PATH="$HOME/.local/bin:$PATH"')
LINES_TO_THE_FIRST_SUCCESS = 60


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.long
@pytest.mark.timeout(1200)  # packages are downloaded twice
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here, which the walk needs")
@pytest.mark.parametrize("document", WALKS, ids=lambda document: document.name)
def test_every_command_prints_what_the_document_says_and_the_last_one_uninstalls(
    document: Path, reader: Reader, tmp_path: Path
) -> None:
    for step in steps(document):
        if step.section != ON_A_CLUSTER:
            reader.follow(step)

    reader.follow(Command("", "make -C ~/trainmaster uninstall", ("…", "trainmaster: removed; …", "…")))
    assert not list((tmp_path / ".local" / "bin").iterdir())
    assert not (tmp_path / ".local" / "share" / "trainmaster").exists()


@pytest.fixture
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """An empty cluster: the documents install the definitions."""
    with ControlPlane(binaries=binaries) as plane:
        yield plane


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here, which the walk needs")
@pytest.mark.parametrize("document", WALKS, ids=lambda document: document.name)
def test_every_command_for_a_cluster_works_with_a_real_api_server(
    document: Path, plane: ControlPlane, reader: Reader, tmp_path: Path
) -> None:
    """No pod runs there: what is printed for a job is about one that waits."""
    (tmp_path / ".kube").mkdir()
    shutil.copy(plane.kubeconfig(), tmp_path / ".kube" / "config")
    for step in steps(document):
        if step.section == ON_A_CLUSTER or step.text in INSTALL:
            reader.follow(step)


def test_both_documents_have_the_same_first_program() -> None:
    first, second = ({step for step in steps(each) if isinstance(step, SavedFile)} for each in WALKS)

    assert first
    assert {(step.name, step.text) for step in first} <= {(step.name, step.text) for step in second}


def test_the_first_success_is_on_the_first_screen_of_the_readme() -> None:
    before, found, _ = README.read_text().partition("\naitrainingjob/train Succeed")

    assert found
    assert len(before.splitlines()) <= LINES_TO_THE_FIRST_SUCCESS


def test_the_readme_begins_with_the_two_commands_that_set_up_everything_and_their_times() -> None:
    top = README.read_text().partition("\n## ")[0]

    for command in ("`make demo`", "`make test`"):
        assert re.search(rf"{command}[^`]*(`[^`]*`)?[^`]*\d+ (minutes|s)\b", top), command


def test_the_picture_of_the_readme_shows_its_first_command() -> None:
    picture = (REPOSITORY / "docs" / "terminal.svg").read_text()
    words = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    first = next(step for step in steps(README) if not isinstance(step, SavedFile) and "train.py" in step.text)

    assert first.text in " ".join(words)
