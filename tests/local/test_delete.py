"""`trainmaster delete` says what is true while programs take their time to end."""

import asyncio
import json
from pathlib import Path

from tests.local.cluster import AITJ, POLL, client_of, create, items_of, until_running
from tests.local.conftest import Start, Up
from tests.local.program import job, role, script
from trainmaster.core.ids import POD

STUBBORN = script("trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done")
SENTENCE = "aitrainingjob/ign in namespace default of the local cluster "


async def test_delete_waits_until_the_pods_have_ended(up: Up, state: Path, start: Start) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, job("ign", worker=role(STUBBORN, grace=7)))
        await until_running(cluster, 1)
        assert "worker-0 | ready\n" in start("logs", "ign", "--follow", "--state", str(state)).until(bool)
        code, out, err = start("delete", "ign", "--state", str(state)).end()

        assert (code, out) == (0, f"{SENTENCE}is deleted with its pods\n")
        assert err == "aitrainingjob/ign is deleted; its 1 pod has up to 7 s to end; Ctrl-C stops the waiting\n"
        assert await items_of(cluster, POD) == []


async def test_delete_without_waiting_says_how_long_the_pods_have_and_the_next_job_waits_for_them(
    up: Up, state: Path, start: Start
) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, job("ign", worker=role(STUBBORN, grace=20)))
        await until_running(cluster, 1)
        start("logs", "ign", "--follow", "--state", str(state)).until(lambda line: "ready" in line)
        assert start("delete", "ign", "--no-wait", "--state", str(state)).end() == (
            0,
            f"{SENTENCE}is deleted; its 1 pod has up to 20 s to end\n",
            "",
        )
        await create(cluster, job("ign", worker=role(["true"])))
        while "PodCreateFailed" not in json.dumps(await items_of(cluster, AITJ)):  # noqa: ASYNC110  as tests.local.cluster does
            await asyncio.sleep(POLL)
        again = start("why", "ign", "--state", str(state)).end()[1]
        assert "waits for the pod of the deleted AITrainingJob ign, which has up to 20 s to end" in again
        assert "the name is taken" not in again


async def test_a_job_without_pods_is_deleted_at_once(up: Up, state: Path, start: Start) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, job("ign", spec={"suspend": True}, worker=role(["true"])))
        said = start("delete", "ign", "--state", str(state)).end()

    assert said == (0, f"{SENTENCE}is deleted; it has no pods\n", "")
