"""Names of jobs: those that were given stay, those that were derived are free ones."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from testbed.operator import REPOSITORY
from tests.local.conftest import Start
from trainmaster import AsyncClient, Client, Job, Refused
from trainmaster.client.creation import create
from trainmaster.client.job_finder import JobFinder
from trainmaster.client.manifest import Document, placed
from trainmaster.client.program import ProgramOptions, job_of


def test_a_job_without_a_name_gets_one_of_its_program_that_is_free(client: Client) -> None:
    jobs = [client.submit(Job(command=["sh", "-c", "exit"])) for _ in range(3)]
    assert [job.name for job in jobs] == ["sh", "sh-2", "sh-3"]

    jobs[1].delete()
    assert client.submit(Job(command=["sh", "-c", "exit"])).name == "sh-2"


def test_a_name_that_was_given_is_refused_with_what_to_do(client: Client) -> None:
    given = Job("sh", command=["sh", "-c", "exit"])
    client.submit(given)
    with pytest.raises(Refused) as refused:
        client.submit(given)
    text = str(refused.value)
    assert text.startswith("Job('sh'): aitrainingjob/sh exists in namespace default of the local cluster; ")
    assert "trainmaster delete aitrainingjob/sh" in text
    assert text.endswith("or give this one another name, or submit it with unique=True")


async def test_two_that_start_at_the_same_time_get_two_names(finder: JobFinder) -> None:
    """Both see that the name is taken, and choose the same free one."""
    document = job_of(["sh"], ProgramOptions(), {})
    names = await asyncio.gather(*(_created(finder, document) for _ in range(6)))
    assert len(set(names)) == 6
    assert {"sh", "sh-2"} <= set(names)
    assert all(name == "sh" or name.startswith("sh-") for name in names)


async def test_a_long_name_stays_short_enough_for_its_pods(finder: JobFinder) -> None:
    document = job_of([40 * "a"], ProgramOptions(), {})
    names = [await _created(finder, document) for _ in range(2)]
    assert names == [40 * "a", f"{38 * 'a'}-2"]


async def test_a_name_that_set_gave_is_not_changed(finder: JobFinder) -> None:
    document = job_of(["sh"], ProgramOptions(), {})
    body = {**document.body, "metadata": {"name": "chosen"}}
    chosen = msgspec.structs.replace(document, body=body)
    await _created(finder, chosen)
    with pytest.raises(Refused, match="aitrainingjob/chosen exists"):
        await _created(finder, chosen)


def test_the_first_example_of_the_document_runs_twice(
    start: Start, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the cluster of `trainmaster up`, which keeps the first job."""
    example = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "client.md").read_text(), re.DOTALL)[0]
    assert "Client()" in example
    start("up").until(lambda line: "export KUBECONFIG=" in line)
    (user / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(user)
    for _ in range(2):
        exec(compile(example, "client.md", "exec"), {})
    with Client() as client:
        assert [(job.name, job.status().outcome) for job in client.jobs()] == [
            ("train", "succeeded"),
            ("train-2", "succeeded"),
        ]


@pytest.fixture
async def finder() -> AsyncIterator[JobFinder]:
    async with AsyncClient() as client:
        yield client.finder


async def _created(finder: JobFinder, document: Document) -> str:
    """The name that it got."""
    (job,) = await create(finder, placed([document], "default"), lambda _: None)
    return job.key.name
