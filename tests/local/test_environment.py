"""A process of a large job sees the addresses that are in the ConfigMap of its job."""

from pathlib import Path

import pytest

from tests.local.cluster import AITJ, client_of, create, items_of, until_ended
from tests.local.conftest import Up
from tests.local.program import job, role, script
from trainmaster.core.ids import POD

PORTS = tuple(range(30_000, 30_300))
"""More than 16 KiB of addresses, with two processes alone."""


@pytest.mark.timeout(60)
async def test_every_process_of_a_large_job_sees_all_addresses(up: Up, state: Path, tmp_path: Path) -> None:
    tell = script('printf %s "$WORKER_HOSTS" > "hosts-$TRAININGJOB_REPLICA_INDEX"')
    up()
    async with client_of(state) as cluster:
        await create(cluster, job(spec={"cleanPodPolicy": "None"}, worker=role(tell, 2, ports=PORTS)))
        await until_ended(cluster, AITJ, "job")
        pods = await items_of(cluster, POD)

    mains = [pod["spec"]["containers"][0] for pod in sorted(pods, key=lambda pod: pod["metadata"]["name"])]
    for main in mains:
        (entry,) = [entry for entry in main["env"] if entry["name"] == "WORKER_HOSTS"]
        assert entry["valueFrom"]["configMapKeyRef"]["key"] == "WORKER_HOSTS"
    ports = [(index, port["containerPort"]) for index, main in enumerate(mains) for port in main["ports"]]
    expected = ",".join(f"job-worker-{index}.default:{port}" for index, port in ports)
    assert [(tmp_path / f"hosts-{index}").read_text() for index in (0, 1)] == [expected, expected]
