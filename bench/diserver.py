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
TASK_JOBS = "diengine.opendilab.org/v2alpha1/dijobs"
TEMPLATE = {"spec": {"containers": [{"name": "di-container", "image": "registry.example/team/di:2026.11"}]}}
JOBS = 50
REPLICAS = 5000
GETS = 10_000
CONNECTIONS = 16
PATIENCE = 120.0
PAUSE = 0.3
"""Seconds between two requests: the test bed has come to rest before the next one."""


class DiServer(msgspec.Struct):
    """Seconds of each POST for two collectors and two learners, and GETs a second of one core of the server. The same
    of jobs with tasks, whose POST is for two more collectors."""

    posts: list[float]
    gets_per_core: float
    task_posts: list[float]
    task_gets_per_core: float


def measure(bed: Bed) -> DiServer:
    with (
        bed.namespace("g", is_last=True) as namespace,
        ServerProcess(bed.plane, args=["--allow-unidentified"]) as server,
    ):
        with bed.operator():
            bed.admin.send(Request("POST", path_of(DIJOBS, namespace), _job(f"job-{i}")) for i in range(JOBS))
            bed.admin.send(Request("POST", path_of(TASK_JOBS, namespace), _task_job(f"tasks-{i}")) for i in range(JOBS))
            _wait_for_pods(bed, namespace, JOBS + 2 * JOBS)
            posts = asyncio.run(_posts(server.url, [_post(namespace, i) for i in range(JOBS)]))
            task_posts = asyncio.run(_posts(server.url, [_task_post(namespace, i) for i in range(JOBS)]))
        bed.progress(
            f"POST took {max(posts) * 1000:.0f} ms at most, of jobs with tasks {max(task_posts) * 1000:.0f} ms"
        )
        bed.admin.send(_declarations(namespace))
        bed.admin.send(_ranks(namespace))
        rate = _gets_per_core(server, f"/v1alpha1/replicas?namespace={namespace}&coordinator=job-0-coordinator", 2)
        task_rate = _gets_per_core(server, f"/v2alpha1/job/{namespace}.tasks-0/replicas", 1)
        bed.progress(f"{rate:.0f} GETs a second of one core, of jobs with tasks {task_rate:.0f}")
    return DiServer(sorted(posts), round(rate), sorted(task_posts), round(task_rate))


def _wait_for_pods(bed: Bed, namespace: str, number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while bed.count(namespace, ["pods"]) < number:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all of {number} pods were created within {PATIENCE:g} s")
        time.sleep(PAUSE)


def _post(namespace: str, i: int) -> tuple[str, Object]:
    asked = {"collectors": {"replicas": 2}, "learners": {"replicas": 2}}
    return "/v1alpha1/replicas", {"namespace": namespace, "coordinator": f"job-{i}-coordinator", **asked}


def _task_post(namespace: str, i: int) -> tuple[str, Object]:
    return f"/v2alpha1/job/{namespace}.tasks-{i}/replicas", {"replicas": 2}


async def _posts(url: str, requests: list[tuple[str, Object]]) -> list[float]:
    taken = []
    async with aiohttp.ClientSession(url) as session:
        for path, body in requests:
            await asyncio.sleep(PAUSE)
            started = time.perf_counter()
            async with session.post(path, data=msgspec.json.encode(body)) as response:
                answer = msgspec.json.decode(await response.read())
            taken.append(time.perf_counter() - started)
            if not answer["success"]:
                raise ValueError(f"di-server answered {answer}")
    return taken


def _gets_per_core(server: ServerProcess, path: str, quotes: int) -> float:
    """``quotes``: a good answer has at least so many quotation marks for each replica."""
    machine.wait_idle([server.pid])
    before = machine.cpu_of(server.pid)
    asyncio.run(_gets(server.url, path, quotes))
    return GETS / (machine.cpu_of(server.pid) - before)


async def _gets(url: str, path: str, quotes: int) -> None:
    numbers = iter(range(GETS))

    async def work(session: aiohttp.ClientSession) -> None:
        for _ in numbers:
            async with session.get(path) as response:
                answer = await response.read()
                if response.status != 200 or answer.count(b'"') < quotes * REPLICAS // JOBS:
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


def _ranks(namespace: str) -> list[Request]:
    """Requests that scale all jobs with tasks, and give ranks to all of their replicas."""
    number = REPLICAS // JOBS
    ranks = {"learner-0": 0, **{f"collector-{n}": n + 1 for n in range(number - 1)}}
    requested = {"collector": {"replicas": number - 1, "specReplicas": 1}}
    status = {"ranks": ranks, "requestedReplicas": requested}
    return [
        Request("PATCH", path_of(TASK_JOBS, namespace, f"tasks-{i}", "status"), {"status": status}, MERGE)
        for i in range(JOBS)
    ]


def _task_job(name: str) -> Object:
    return {
        "apiVersion": "diengine.opendilab.org/v2alpha1",
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": {"tasks": [{"type": type_, "template": TEMPLATE} for type_ in ("learner", "collector")]},
    }


def _job(name: str) -> Object:
    roles = {role: {"template": TEMPLATE} for role in ("coordinator", "collector", "learner")}
    return {
        "apiVersion": "diengine.opendilab.org/v1alpha1",
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": roles,
    }
