"""Which Events `trainmaster why` reads."""

from typing import Any, cast

import msgspec

from tests.build import Json
from tests.client.found import found
from tests.kinds.mlkube.build import a_begun, a_job, observed
from trainmaster.client.evidence import events_of
from trainmaster.kube.client import KubeCluster


class Events:
    """A cluster that has nothing but Events."""

    def __init__(self, *events: Json) -> None:
        self._items = events

    async def list(self, *_: Any, **__: Any) -> bytes:
        return msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": self._items})


def an_event(kind: str, name: str, uid: str, message: str) -> Json:
    metadata = {"name": f"{name}.{message}", "namespace": "ml", "uid": f"uid-of-{message}", "resourceVersion": "5"}
    about = {"kind": kind, "name": name, "uid": uid}
    return {"metadata": metadata, "involvedObject": about, "type": "Warning", "reason": "Why", "message": message}


async def test_the_events_of_batch_jobs_are_read() -> None:
    job = a_begun()
    worker = a_job(job, "worker")
    cluster = Events(
        an_event("Job", worker.key.name, worker.uid, "own"),
        an_event("Job", worker.key.name, "uid-of-its-predecessor", "older"),
        an_event("Job", "another", "uid-of-another", "foreign"),
    )

    read = await events_of(cast(KubeCluster, cluster), found(job), observed([worker]))

    assert [(event.what, event.message) for event in read] == [(f"job {worker.key.name}", "own")]
