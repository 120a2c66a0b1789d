"""Elastic jobs in local mode: the story of tests/integration/test_elastic.py with real processes, which read who takes
part and are told to go."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.local.cluster import AITJ, POLL, client_of, create, items_of, until, until_ended
from tests.local.conftest import Up
from tests.local.program import job, role, script
from trainmaster.core.ids import CONFIG_MAP, EVENT, POD, SERVICE, Key
from trainmaster.kube.client import KubeCluster

WORK = script(
    "trap 'touch drained-$HOSTNAME; exit 0' TERM; "
    'while sleep 0.05; do cp "$TRAININGJOB_MEMBERSHIP_FILE" new-$HOSTNAME && mv new-$HOSTNAME read-$HOSTNAME; done'
)
"""Copies what it reads to where the test finds it."""


def workers(count: int) -> set[str]:
    return {f"job-worker-{index}" for index in range(count)}


async def scale(cluster: KubeCluster, to: int) -> None:
    patch = json.dumps({"spec": {"replicas": to}}).encode()
    await cluster.patch(AITJ, Key("default", "job"), patch, subresource="scale")


async def uids(cluster: KubeCluster, count: int) -> dict[str, str]:
    """The pods, once there are so many and all of them run."""
    while True:
        pods = await items_of(cluster, POD)
        found = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
        if found.keys() == workers(count) and {pod["status"].get("phase") for pod in pods} == {"Running"}:
            return found
        await asyncio.sleep(POLL)


async def settled(cluster: KubeCluster, count: int) -> dict[str, Any]:
    """The job, once it counts so many and their services alone are left; counters are stored a little later."""
    while True:
        stored: dict[str, Any] = json.loads(await cluster.get(AITJ, Key("default", "job")))
        services = {item["metadata"]["name"] for item in await items_of(cluster, SERVICE)}
        if stored["status"]["elasticReplicas"] == count and services & workers(4) == workers(count):
            return stored
        await asyncio.sleep(POLL)


def members_in(file: Path) -> set[str]:
    return {member["name"] for member in json.loads(file.read_text())["members"]} if file.exists() else set()


def has_been_read(folder: Path, names: set[str]) -> bool:
    return all(members_in(folder / f"read-{name}") == names for name in names)


def drained_in(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("drained-*")}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", ["Manual", "Auto"])
async def test_a_job_is_scaled_up_and_down_and_every_process_reads_who_takes_part(
    policy: str, up: Up, state: Path, tmp_path: Path
) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, job(worker=role(WORK, 2, edlPolicy=policy, minReplicas=1, grace=10)))
        before = await uids(cluster, 2)

        for size in (4, 1, 2):
            await scale(cluster, size)
            now = await uids(cluster, size)
            await until(partial(has_been_read, tmp_path, workers(size)))
            assert now["job-worker-0"] == before["job-worker-0"]

        stored = await settled(cluster, 2)
        config_maps = [item["metadata"]["name"] for item in await items_of(cluster, CONFIG_MAP)]

    assert stored["status"]["phase"] == "Running"
    assert "RestartCount" not in stored["status"]
    assert config_maps == ["job-membership"]
    assert drained_in(tmp_path) == {"drained-job-worker-1", "drained-job-worker-2", "drained-job-worker-3"}


async def test_the_end_of_a_job_makes_no_warnings(up: Up, state: Path) -> None:
    """Neither a pod that ends slowly nor one that is kept looks for the file of members, which is deleted."""
    first = 'trap "sleep 0.5; exit 0" TERM; [ $TRAININGJOB_REPLICA_INDEX = 0 ] && exit 0; while :; do sleep 0.05; done'
    worker = role(script(first), 3, minReplicas=1, maxReplicas=4, edlPolicy="Manual", completePolicy="Any")
    up()
    async with client_of(state) as cluster:
        for name in ("job", "next"):  # when the second has ended, the node has seen all changes of the first
            await create(cluster, job(name, spec={"cleanPodPolicy": "Running", "completePolicy": "Any"}, worker=worker))
            await until_ended(cluster, AITJ, name)
        warnings = [event for event in await items_of(cluster, EVENT) if event["type"] == "Warning"]

    assert [event["message"] for event in warnings] == []
