"""What all pods of a node share: the machine, the folder, the API."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from trainmaster.core.errors import NotFound
from trainmaster.core.ids import Key
from trainmaster.local.node import environment, resource
from trainmaster.local.node.account import Access
from trainmaster.local.node.address import Addresses
from trainmaster.local.node.backoff import RestartBackoff
from trainmaster.local.node.environment import Source, Sources, data_of
from trainmaster.local.node.event import PodEvents
from trainmaster.local.node.gpu import Gpus
from trainmaster.local.node.isolation import Isolation, compiled_shim
from trainmaster.local.node.name import HostsFiles, resolver_mounts
from trainmaster.local.node.security import Policy
from trainmaster.runtime.cluster import Cluster

STARTS_AT_ONCE = 16
_RESOURCES = {environment.CONFIG_MAP: resource.CONFIG_MAP, environment.SECRET: resource.SECRET}


class Host:
    def __init__(
        self,
        cluster: Cluster,
        *,
        folder: Path,
        workdir: Path,
        isolation: Isolation,
        hosts: HostsFiles,
        addresses: Addresses,
        events: PodEvents,
        allocatable: Mapping[str, str],
        gpus: Gpus,
        backoff: RestartBackoff,
        keeps_logs: bool,
        keeps_deleted_logs: bool,
        is_last: bool,
        access: Access | None,
        policy: Policy,
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.workdir = workdir
        self.isolation = isolation
        self.shim = compiled_shim(folder)
        self.resolver_mounts = resolver_mounts(folder / "hosts") if isolation.mode else []
        self.hosts = hosts
        self.addresses = addresses
        self.events = events
        self.allocatable = allocatable
        self.gpus = gpus
        self.backoff = backoff
        self.keeps_logs = keeps_logs
        self.keeps_deleted_logs = keeps_deleted_logs
        self.is_last = is_last
        self.policy = policy
        # Without mounts a token would not be where programs look for it.
        self.access = access if isolation.mode else None
        self.inherited = environment.inherited(os.environ, is_own=not policy.is_strict)
        if self.access:
            self.inherited |= self.access.environment
        self.starting = asyncio.Semaphore(STARTS_AT_ONCE)

    async def fetch(self, namespace: str, sources: Iterable[Source]) -> Sources:
        """Reads config maps and secrets."""
        return {source: await self._fetch(namespace, source) for source in sources}

    async def _fetch(self, namespace: str, source: Source) -> dict[str, bytes] | None:
        try:
            raw = await self.cluster.get(_RESOURCES[source.kind], Key(namespace, source.name))
        except NotFound:
            return None
        return data_of({"kind": source.kind, **msgspec.json.decode(raw)})
