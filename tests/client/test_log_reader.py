"""Logs that are followed while their pods are deleted."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.client.found import found
from tests.manifests.build import aitrainingjob
from trainmaster.client import log_reader
from trainmaster.client.log_reader import LogOptions, LogReader
from trainmaster.client.run_model import LogSource
from trainmaster.core.errors import NotFound
from trainmaster.core.ids import Key
from trainmaster.kube.client import KubeCluster
from trainmaster.local.deleted_log import DeletedPod, deleted_pods, keep

SOURCE = LogSource("uid-1", Key("default", "job-worker-0"), "main", 1, "worker-0", "worker")


class Gone:
    """An API server that has deleted the pod."""

    def log(self, *_: Any, **__: Any) -> Any:
        raise NotFound("pods job-worker-0 not found")


async def followed(deleted: log_reader.ReadDeleted) -> list[tuple[str, str]]:
    """What is written about a container whose pod was deleted before its log could be read."""
    written: list[tuple[str, str]] = []

    async def write(label: str, line: str) -> None:
        written.append((label, line))

    reader = LogReader(
        cast(KubeCluster, Gone()), found(aitrainingjob()), LogOptions(is_all=True), write, deleted=deleted
    )
    await reader.stream(SOURCE)
    return written


def delete(node: Path) -> None:
    """As a node does it."""
    for attempt, text in (("0", "earlier"), ("1", "hello")):
        place = node / "pods" / "uid-1" / "containers" / "main" / attempt
        place.mkdir(parents=True)
        (place / "log").write_text(f"2026-11-18T00:00:00Z stdout F {text}\n")
    keep(node, {"metadata": {"uid": "uid-1"}, "spec": {}}, node / "pods" / "uid-1")


async def test_the_local_cluster_keeps_the_log_of_a_pod_that_was_deleted_before_it_could_be_read(
    tmp_path: Path,
) -> None:
    looks = 0

    def deleted() -> list[DeletedPod]:
        nonlocal looks
        looks += 1
        if looks == 2:  # the node moves the log after the pod is deleted from the API
            delete(tmp_path)
        return deleted_pods(tmp_path)

    assert await followed(deleted) == [("worker-0", "hello")]


async def test_a_cluster_deletes_the_log_with_the_pod() -> None:
    assert await followed(lambda: None) == [("worker-0", "(its pod is deleted, and its log with it)")]


async def test_a_log_that_does_not_come_is_not_waited_for_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "KEPT_SECONDS", 0.0)

    assert await followed(list) == [("worker-0", "(its pod is deleted, and its log with it)")]
