"""Jobs of other tenants: each has a namespace of its own and lives from creation to success."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.admin import Admin
from testbed.answer import Object
from tests.matrix.kinds import BY_JOB, Options, Row

PATIENCE = 120.0
"""Seconds for one step of a job's life under attack. A limit for the test, not a claim."""


@dataclass(frozen=True)
class Life:
    """``created_after`` is the time from the creation of the job to that of its last pod, in seconds. ``plain`` is the
    time in which the test itself creates as many pods at the same moment: what the API server alone takes."""

    row: Row
    created_after: float
    plain: float


async def run_jobs(admin: Admin, prefix: str, count: int, *, pause: float, lives: list[Life]) -> None:
    """So many jobs of all kinds, one every ``pause`` seconds; fills ``lives``."""

    async def one(number: int) -> None:
        await asyncio.sleep(number * pause)
        lives.append(await run_job(admin, f"{prefix}-{number}", BY_JOB[number % len(BY_JOB)]))

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))


async def run_job(admin: Admin, namespace: str, row: Row) -> Life:
    await admin.create("namespaces", {"metadata": {"name": namespace}})
    manifest = row.build(Options())
    body = {key: manifest[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "job"}}
    resource = f"{body['apiVersion']}/{PLURALS[body['kind']]}"
    await admin.create(resource, body, namespace)
    began = time.monotonic()
    if status := manifest.get("status"):
        await admin.set_status(resource, namespace, "job", status)
    pods = await _until_created(admin, namespace, row.size)
    created_after = time.monotonic() - began
    life = Life(row, created_after, await _plain(admin, namespace, row.size))
    await _report(admin, namespace, pods, phase="Running")
    await admin.wait_for(resource, namespace, "job", lambda job: row.is_running(job), timeout=PATIENCE)
    deciding = [pod for pod in pods if not row.deciding or pod["metadata"]["name"].startswith(row.deciding)]
    await _report(admin, namespace, deciding, phase="Succeeded", containers=[0])
    await admin.wait_for(resource, namespace, "job", lambda job: row.result(job) == "Succeeded", timeout=PATIENCE)
    return life


PLURALS = {"AITrainingJob": "aitrainingjobs", "DIJob": "dijobs", "NerveXJob": "nervexjobs"} | dict.fromkeys(
    ("MXJob", "MxJob"), "mxjobs"
)


async def _plain(admin: Admin, namespace: str, size: int) -> float:
    """They are in another namespace: in that of the job they would be counted as its pods."""
    other = f"{namespace}-plain"
    await admin.create("namespaces", {"metadata": {"name": other}})
    began = time.monotonic()
    bodies = (
        {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        for number in range(size)
    )
    await asyncio.gather(*(admin.create("pods", body, other) for body in bodies))
    return time.monotonic() - began


async def _until_created(admin: Admin, namespace: str, size: int) -> Sequence[Object]:
    return await admin.wait_list("pods", namespace, lambda pods: len(pods) == size, timeout=PATIENCE)


async def _report(admin: Admin, namespace: str, pods: Sequence[Object], **state: Any) -> None:
    await asyncio.gather(*(admin.set_pod(namespace, pod["metadata"]["name"], **state) for pod in pods))
