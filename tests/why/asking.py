"""Runs failures on a cluster, asks ``trainmaster why`` before and after the pods are deleted, and counts."""

import asyncio
import json
import os
import resource
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.build import kind_of
from tests.local.program import PROGRAM
from tests.manifests.build import Manifest
from tests.why.table import Failure
from trainmaster.core.ids import EVENT, Key, Resource
from trainmaster.kube.client import KubeCluster

POLL = 0.1
AT_ONCE = 6
"""Jobs at a time."""
PATIENCE = 90.0
"""Seconds for a job to fail."""
KEPT, CLEANED = "kept", "cleaned"
BLOCKED = ("PodCreateFailed", "ContainerCreateFailed", "PodsWaiting")


@dataclass(frozen=True)
class Answer:
    lines: tuple[str, ...]
    seconds: float
    cpu: float
    """Seconds of CPU: on a busy machine an answer takes longer."""

    def error(self, failure: Failure) -> str:
        """What is wrong with the first line; empty if it names the cause."""
        first = self.lines[0]
        missing = [word for word in failure.says if word not in first]
        wrong = [word for word in failure.never if word in first]
        return f"without {missing}, with {wrong}:\n" + "\n".join(self.lines) if missing or wrong else ""


Answers = Mapping[tuple[str, str], Answer]
"""By the name of the failure, and whether pods are kept or cleaned."""


def report(failures: Sequence[Failure], answers: Answers) -> str:
    """One line with the figures."""
    bad = sorted({name for (name, _), answer in answers.items() if answer.error(named(failures, name))})
    good = f"{len(failures) - len(bad)} of {len(failures)} causes{_but(bad)}"
    slowest = max(answers.values(), key=lambda answer: answer.seconds)
    return f"why names {good}; the slowest answer took {slowest.seconds:.1f} s, {slowest.cpu:.1f} s of it on the CPU"


def _but(names: Sequence[str]) -> str:
    return f" (not {', '.join(names)})" if names else ""


def named(failures: Sequence[Failure], name: str) -> Failure:
    return next(failure for failure in failures if failure.name == name)


class Asking:
    """A namespace of a cluster. Every job runs twice: once its pods are kept, once they are deleted when it ends."""

    def __init__(
        self,
        cluster: KubeCluster,
        kubeconfig: Path,
        namespace: str = "default",
        *,
        node: str = "",
        act: Callable[[Failure, str], Awaitable[None]] | None = None,
    ) -> None:
        """All pods are bound to ``node``. ``act`` is called with the name of a job that was created."""
        self._cluster, self._kubeconfig, self._namespace = cluster, kubeconfig, namespace
        self._node, self._act = node, act

    async def ask_all(self, failures: Sequence[Failure]) -> Answers:
        room = asyncio.Semaphore(AT_ONCE)

        async def until_known(failure: Failure, policy: str) -> None:
            async with room:
                await self._until_known(await self._create(failure, policy), failure)

        wanted = [(failure, policy) for failure in failures for policy in (KEPT, CLEANED)[: 1 + (not failure.waits)]]
        await asyncio.gather(*(until_known(*each) for each in wanted))
        with_events = [each for each in wanted if each[1] == KEPT or each[0].needs_events]
        found = {(f.name, policy): await self._why(_job(f, policy)) for f, policy in with_events}
        await self._delete_events()
        for failure, policy in wanted:
            if (failure, policy) not in with_events:
                found[failure.name, policy] = await self._why(_job(failure, policy))
        return found

    async def _create(self, failure: Failure, policy: str) -> Manifest:
        manifest = _job(failure, policy)
        if self._node:
            _bind(manifest["spec"], self._node)
        await self._cluster.create(_resource(manifest), self._namespace, json.dumps(manifest).encode())
        if self._act:
            await self._act(failure, manifest["metadata"]["name"])
        return manifest

    async def _until_known(self, manifest: Manifest, failure: Failure) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await self._is_known(manifest, failure):  # noqa: ASYNC110  other processes ring no bell
                await asyncio.sleep(POLL)

    async def _is_known(self, manifest: Manifest, failure: Failure) -> bool:
        name = manifest["metadata"]["name"]
        stored = json.loads(await self._cluster.get(_resource(manifest), Key(self._namespace, name)))
        conditions = stored.get("status", {}).get("conditions", [])
        true = {condition["type"] for condition in conditions if condition["status"] == "True"}
        if failure.waits:
            return not true.isdisjoint(BLOCKED) or await self._has_warning(name)
        return "Finished" in true

    async def _has_warning(self, name: str) -> bool:
        events = json.loads(await self._cluster.list(EVENT, namespace=self._namespace))["items"]
        return any(e["type"] == "Warning" and e["involvedObject"]["name"].startswith(f"{name}-") for e in events)

    async def _delete_events(self) -> None:
        """They expire: an API server keeps them for an hour."""
        for event in json.loads(await self._cluster.list(EVENT, namespace=self._namespace))["items"]:
            meta = event["metadata"]
            await self._cluster.delete(EVENT, Key(self._namespace, meta["name"]), uid=meta["uid"])

    async def _why(self, manifest: Manifest) -> Answer:
        kind, name = _resource(manifest).plural, manifest["metadata"]["name"]
        group = manifest["apiVersion"].partition("/")[0]
        began, used = time.monotonic(), _cpu_of_children()
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            "why",
            f"{kind}.{group}/{name}",
            "--kubeconfig",
            str(self._kubeconfig),
            "--namespace",
            self._namespace,
            env={"PATH": os.environ["PATH"], "HOME": str(self._kubeconfig.parent)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b""), (out, err)
        return Answer(tuple(out.decode().splitlines()), time.monotonic() - began, _cpu_of_children() - used)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _job(failure: Failure, policy: str) -> Manifest:
    manifest = deepcopy(failure.job)
    manifest["metadata"]["name"] += "-c" if policy == CLEANED else ""
    manifest["spec"]["cleanPodPolicy"] = "All" if policy == CLEANED else "None"
    return manifest


def _resource(manifest: Manifest) -> Resource:
    version = manifest["apiVersion"].rpartition("/")[2]
    return msgspec.structs.replace(kind_of(manifest).resource, version=version)


def _bind(value: Any, node: str) -> None:
    """Puts the pods of all templates on a node."""
    if isinstance(value, dict) and "containers" in value:
        value["nodeName"] = node
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            _bind(inner, node)
