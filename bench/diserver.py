"""di-server: how long a coordinator waits for its replicas, and how many of them one server can answer."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from bench import machine
from bench.bed import Bed
from bench.load import Request
from testbed.admin import MERGE, path_of
from testbed.server import ServerProcess

Object = dict[str, Any]

DIJOBS = "diengine.opendilab.org/v1alpha1/dijobs"
JOBS = 50
REPLICAS = 5000
GETS = 10_000
CONNECTIONS = 16
PATIENCE = 120.0
PAUSE = 0.3
"""Seconds between two requests: the test bed has come to rest before the next one."""


class DiServer(msgspec.Struct):
    """Seconds of each POST for two collectors and two learners, and GETs a second of one core of the server."""

    posts: list[float]
    gets_per_core: float


def measure(bed: Bed) -> DiServer:
    with (
        bed.namespace("g", is_last=True) as namespace,
        ServerProcess(bed.plane, args=["--allow-unidentified"]) as server,
    ):
        with bed.operator():
            bed.admin.send(Request("POST", path_of(DIJOBS, namespace), _job(f"job-{i}")) for i in range(JOBS))
            _wait_for_coordinators(bed, namespace)
            posts = asyncio.run(_posts(server.url, namespace))
        bed.progress(f"POST took {max(posts) * 1000:.0f} ms at most")
        bed.admin.send(_declarations(namespace))
        machine.wait_idle([server.pid])
        before = machine.cpu_of(server.pid)
        asyncio.run(_gets(server.url, namespace))
        rate = GETS / (machine.cpu_of(server.pid) - before)
        bed.progress(f"{rate:.0f} GETs a second of one core")
    return DiServer(sorted(posts), round(rate))


def _wait_for_coordinators(bed: Bed, namespace: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while bed.count(namespace, ["pods"]) < JOBS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all of {JOBS} coordinators were created within {PATIENCE:g} s")
        time.sleep(PAUSE)


async def _posts(url: str, namespace: str) -> list[float]:
    taken = []
    async with aiohttp.ClientSession(url) as session:
        for i in range(JOBS):
            await asyncio.sleep(PAUSE)
            asked = {"collectors": {"replicas": 2}, "learners": {"replicas": 2}}
            body = {"namespace": namespace, "coordinator": f"job-{i}-coordinator", **asked}
            started = time.perf_counter()
            async with session.post("/v1alpha1/replicas", data=msgspec.json.encode(body)) as response:
                answer = msgspec.json.decode(await response.read())
            taken.append(time.perf_counter() - started)
            if len(answer["data"]["collectors"]) != 2 or len(answer["data"]["learners"]) != 2:
                raise ValueError(f"di-server answered {answer}")
    return taken


async def _gets(url: str, namespace: str) -> None:
    numbers = iter(range(GETS))
    path = f"/v1alpha1/replicas?namespace={namespace}&coordinator=job-0-coordinator"

    async def work(session: aiohttp.ClientSession) -> None:
        for _ in numbers:
            async with session.get(path) as response:
                answer = await response.read()
                if response.status != 200 or answer.count(b"collector-") < REPLICAS // JOBS:
                    raise ValueError(f"di-server answered {response.status} {answer[:200]!r}")

    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:
        await asyncio.gather(*(work(session) for _ in range(CONNECTIONS)))


def _declarations(namespace: str) -> list[Request]:
    """Requests that declare all replicas, as if they had been asked for."""
    member = {"role": "collector", "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return [
        Request(
            "PATCH",
            path_of(DIJOBS, namespace, f"job-{i}", "status"),
            {
                "status": {
                    "declared": {"members": {f"job-{i}-collector-{n:05}": member for n in range(REPLICAS // JOBS)}}
                }
            },
            MERGE,
        )
        for i in range(JOBS)
    ]


def _job(name: str) -> Object:
    template = {"spec": {"containers": [{"name": "di-container", "image": "registry.example/team/di:2026.11"}]}}
    roles = {role: {"template": template} for role in ("coordinator", "collector", "learner")}
    return {
        "apiVersion": "diengine.opendilab.org/v1alpha1",
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": roles,
    }
