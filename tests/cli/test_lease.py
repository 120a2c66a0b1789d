"""The lease over real HTTP: it is renewed whatever the passes wait for, and when an answer gets lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.cli.test_operator import DEFAULTS
from tests.kube.build import a_config
from tests.kube.serve import ApiServer, hang
from trainmaster.cli.operator_process import _electing
from trainmaster.core.ids import POD
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.transport import CONNECTIONS
from trainmaster.wiring.manager import chosen

OPTIONS = msgspec.structs.replace(
    DEFAULTS,
    leader_elect_lease_duration=60.0,
    leader_elect_renew_deadline=6.0,
    leader_elect_retry_period=0.02,
    leader_elect_resource_namespace="system",
)
KINDS = chosen(all_resource_kinds(Settings()), ["dijob"])
LEASES = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
BODY = b'{"metadata":{"name":"a"}}'


class Api(ApiServer):
    """Has one lease. ``is_lost`` says of which requests for it there is no answer; pods are never created."""

    def __init__(self, is_lost: Callable[["Api", str], bool] = lambda api, method: False) -> None:
        super().__init__((self._answer,), None)
        self.lease = {
            "metadata": {"name": "dijobs.diengine.opendilab.org", "uid": "u", "resourceVersion": "1"},
            "spec": {},
        }
        self.renewals = 0
        self.lost = 0
        self.pods = 0
        self._is_lost = is_lost
        self._changed = asyncio.Condition()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/pods"):
            await self._count(pods=1)
            return await hang(request)
        assert request.path.startswith(LEASES)
        if self._is_lost(self, request.method):
            await self._count(lost=1)
            return await hang(request)
        if request.method == "PUT":
            self.lease = msgspec.json.decode(await request.read())
            await self._count(renewals=1)
        return web.json_response(self.lease)

    async def _count(self, **more: int) -> None:
        async with self._changed:
            for name, number in more.items():
                setattr(self, name, getattr(self, name) + number)
            self._changed.notify_all()

    async def until(self, is_met: Callable[["Api"], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: is_met(self))


@asynccontextmanager
async def leading(api: Api) -> AsyncIterator[asyncio.Task[None]]:
    """An operator's elector leads, and renews."""
    await api.start()
    try:
        async with _electing(OPTIONS, KINDS, a_config(api.url), lambda method, code, seconds: None) as electors:
            (elector,) = electors.values()
            await elector.acquire()
            holding = asyncio.create_task(elector.hold())
            try:
                yield holding
            finally:
                holding.cancel()
                await asyncio.wait({holding})
    finally:
        await api.stop()


async def first(holding: asyncio.Task[None], wanted: asyncio.Task[None]) -> None:
    """Until the second has ended; it fails when the lease is lost before."""
    await asyncio.wait({holding, wanted}, return_when=asyncio.FIRST_COMPLETED)
    if not wanted.done():
        wanted.cancel()
        await holding


async def test_the_lease_is_renewed_while_all_other_connections_wait_for_pods() -> None:
    api = Api()
    async with leading(api) as holding, KubeCluster(a_config(api.url)) as cluster:
        creates = [asyncio.create_task(cluster.create(POD, "ml", BODY)) for _ in range(3 * CONNECTIONS)]
        await api.until(lambda api: api.pods == CONNECTIONS)
        before = api.renewals

        await first(holding, asyncio.create_task(api.until(lambda api: api.renewals >= before + 20)))

        assert api.pods == CONNECTIONS
        for create in creates:
            create.cancel()
        await asyncio.wait(creates)


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_the_lease_is_renewed_after_an_answer_got_lost(method: str) -> None:
    def is_lost(api: Api, asked: str) -> bool:
        return api.renewals == 3 and api.lost == 0 and asked == method

    api = Api(is_lost)
    async with leading(api) as holding:
        await first(holding, asyncio.create_task(api.until(lambda api: api.renewals >= 10)))

    assert api.lost == 1


@pytest.mark.parametrize(
    ("given", "leases"),
    [
        pytest.param(
            {}, {"kube-system/dijobs.diengine.opendilab.org", "kube-system/nervexjobs.nervex.sensetime.com"}, id="all"
        ),
        pytest.param(
            {"namespace": "ml"},
            {"ml/dijobs.diengine.opendilab.org", "ml/nervexjobs.nervex.sensetime.com"},
            id="one namespace",
        ),
        pytest.param(
            {"leader_elect_resource_namespace": "ops"},
            {"ops/dijobs.diengine.opendilab.org", "ops/nervexjobs.nervex.sensetime.com"},
            id="another place",
        ),
        pytest.param({"leader_elect_resource_name": "mine"}, {"kube-system/mine"}, id="one for all"),
        pytest.param({"leader_elect": False}, set(), id="none"),
    ],
)
async def test_every_kind_has_a_lease_that_all_installations_share(given: dict[str, Any], leases: set[str]) -> None:
    kinds = chosen(all_resource_kinds(Settings()), ["dijob", "nervexjob"])
    options = msgspec.structs.replace(DEFAULTS, **given)
    async with _electing(options, kinds, a_config("http://127.0.0.1:1"), lambda method, code, seconds: None) as found:
        assert {str(elector._key) for elector in found.values()} == leases
        assert set(found) == ({each.name for each in kinds} if leases else set())
