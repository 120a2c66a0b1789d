"""di-server with the client that it is for: DI-engine's OperatorServer, in a process of its own.

DI-engine needs torch and old packages, so it is no dependency of ours. `make contract` makes an environment for it,
whose Python TRAINMASTER_DI_ENGINE_PYTHON names; without one there is the stand-in of tests/diserver/client.py.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.diserver.bench import NAMESPACE, Bench, serving
from tests.runtime.cluster import Call
from trainmaster.core.errors import Unreachable

PROGRAM = Path(__file__).with_name("operator_server.py")
HERE = "127.0.0.1"
"""Where the client calls from: it cannot be told another address."""


@pytest.fixture(scope="module")
def python() -> str:
    """That has DI-engine."""
    found = os.environ.get("TRAINMASTER_DI_ENGINE_PYTHON", sys.executable)
    looked = subprocess.run([found, PROGRAM, HERE, "1", "", ""], input="", capture_output=True, text=True, check=False)
    if looked.returncode:
        error = looked.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"{found} has no DI-engine that can be used ({error}): run make contract")
    return found


class OperatorServer:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def call(self, method: str, **fields: Any) -> tuple[bool, int, str, Any]:
        """What the client's method returns; fails when the client died."""
        answer = await self._answer(method, fields)
        assert "returned" in answer, f"{method} {fields}: the client died of {answer['died']}"
        success, code, message, data = answer["returned"] or (True, 0, "", None)
        return success, code, message, data

    async def death(self, method: str, **fields: Any) -> str:
        """Of what the client dies."""
        answer = await self._answer(method, fields)
        assert "died" in answer, answer
        return str(answer["died"])

    async def _answer(self, method: str, fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, fields]).encode() + b"\n")
        found: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return found


@asynccontextmanager
async def operator_server(python: str, bench: Bench, name: str = "cart-coordinator") -> AsyncIterator[OperatorServer]:
    host, _, port = bench.url.removeprefix("http://").partition(":")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        python, str(PROGRAM), host, port, NAMESPACE, name, stdin=pipe, stdout=pipe
    )
    try:
        yield OperatorServer(process)
    finally:
        process.kill()
        await process.communicate()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as bench:
        bench.job()
        bench.pod("cart-coordinator", ip=HERE)
        yield bench


def pods_of(urls: list[str]) -> list[str]:
    """As CommCoordinator does it before it reports them."""
    return [".".join(url.split(":")[0].split(".")[:-1]) for url in urls]


async def test_a_coordinator_gets_lists_replaces_and_gives_back_its_replicas(python: str, bench: Bench) -> None:
    async with operator_server(python, bench) as client:
        await client.call("set_worker_type", type="coordinator")
        wanted = {"collectors": {"replicas": 2, "cpus": "0.5"}, "learners": {"gpus": "0", "replicas": 1}}
        success, code, message, made = await client.call("post_replicas", data=wanted)
        assert (success, code, message) == (True, 0, "successfully create replicas")
        assert set(pods_of(made["collectors"] + made["learners"])) == set(bench.members())

        success, code, message, listed = await client.call("get_replicas")
        assert (success, code, message) == (True, 0, "successfully get replicas")
        assert {role: sorted(listed[role]) for role in ("collectors", "learners")} == {
            role: sorted(made[role]) for role in ("collectors", "learners")
        }

        failed = pods_of(made["collectors"][:1])
        success, code, message, new = await client.call("post_replicas_failed", collectors=failed, learners=[])
        assert (success, code, message) == (True, 0, "successfully recreate replicas")
        assert (len(new["collectors"]), new["learners"]) == (1, [])
        assert failed[0] not in bench.members()

        success, code, message, gone = await client.call("delete_replicas", n_collectors=1, n_learners=1)
        assert (success, code, message) == (True, 0, "successfully delete replicas")
        assert [len(gone[role]) for role in ("collectors", "learners")] == [1, 1]
        assert len(bench.members()) == 1


async def test_one_replica_is_asked_for_by_its_name(python: str, bench: Bench) -> None:
    async with operator_server(python, bench) as client:
        _, _, _, made = await client.call("post_replicas", data={"collectors": {"replicas": 2}})

        _, _, _, found = await client.call("get_replicas", name=pods_of(made["collectors"])[0])

        assert found["collectors"] == made["collectors"][:1]


async def test_an_aggregator_finds_a_process_for_each_gpu(python: str, bench: Bench) -> None:
    bench.aggregator_config()
    async with operator_server(python, bench) as client:
        _, _, _, made = await client.call("post_replicas", data={"learners": {"replicas": 1, "gpus": 4}})
    (aggregator,) = pods_of(made["learners"])
    bench.pod(aggregator, ip=HERE)

    async with operator_server(python, bench, aggregator) as client:
        await client.call("set_worker_type", type="aggregator")
        success, _, _, found = await client.call("get_replicas")

    assert success
    assert [url.rpartition(":")[2] for url in found["learners"]] == ["22271", "22272", "22273", "22274"]


async def test_what_passes_by_itself_is_told_and_not_died_of(python: str, bench: Bench) -> None:
    async def broken(call: Call) -> None:
        if call.verb == "patch":
            raise Unreachable("away")

    async with operator_server(python, bench) as client:
        bench.cluster.before = broken
        success, code, _, _ = await client.call("post_replicas", data={"collectors": {"replicas": 1}})

    assert (success, code) == (False, 1)


async def test_it_dies_of_a_refusal(python: str, bench: Bench) -> None:
    """That is why there are so few of them."""
    async with operator_server(python, bench, "nobody") as client:
        assert await client.death("post_replicas", data={"collectors": {"replicas": 1}}) == "RequestException"
