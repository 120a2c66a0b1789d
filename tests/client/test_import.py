"""`import trainmaster`, and what it exports."""

import subprocess
import sys
from pathlib import Path
from typing import assert_type

import pytest

import trainmaster
from trainmaster import AsyncClient, AsyncJobHandle, AsyncJobList, Client, Job, JobHandle, JobList, LogLine
from trainmaster.core.errors import Trainmaster


def test_the_import_loads_nothing_but_itself() -> None:
    """The HTTP stack, the event loop and the kinds are loaded when the API is used first."""
    program = "import sys; before = set(sys.modules); import trainmaster; print(*sorted(set(sys.modules) - before))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    loaded = {name.partition(".")[0] for name in out.split()}
    assert "trainmaster" in loaded
    assert loaded.isdisjoint({"aiohttp", "asyncio", "click", "msgspec", "structlog", "yaml"})
    assert [name for name in out.split() if name.startswith("trainmaster.")] == []


@pytest.mark.parametrize("name", trainmaster.__all__)
def test_every_exported_name_exists(name: str) -> None:
    assert getattr(trainmaster, name).__module__.startswith("trainmaster.")
    assert name in dir(trainmaster)


def test_an_unknown_name_is_an_error_as_in_every_module() -> None:
    with pytest.raises(AttributeError, match="module 'trainmaster' has no attribute 'Clint'"):
        trainmaster.Clint  # type: ignore[attr-defined]  # noqa: B018


def test_all_exceptions_have_one_base() -> None:
    exported = [getattr(trainmaster, name) for name in trainmaster.__all__]
    exceptions = [each for each in exported if issubclass(each, BaseException)]

    assert len(exceptions) == 8
    assert all(issubclass(each, Trainmaster) for each in exceptions)


def check_types(client: Client) -> None:
    """mypy checks it; it is not run."""
    assert_type(client.submit(Job("x", command=["true"])), JobHandle)
    assert_type(client.submit({"kind": "AITrainingJob"}), JobHandle)
    assert_type(client.submit(Path("jobs.yaml")), JobList)
    assert_type(client.jobs(), JobList)
    assert_type(next(client.job("x").logs()), LogLine)
    assert_type(client.job("x").wait(timeout=1.0).succeeded, bool)
    assert_type(client.job("x").why(), str)


async def check_async_types(client: AsyncClient) -> None:
    assert_type(await client.submit(Job("x", command=["true"])), AsyncJobHandle)
    assert_type(await client.submit("jobs.yaml"), AsyncJobList)
    assert_type([line async for line in (await client.job("x")).logs()], list[LogLine])
