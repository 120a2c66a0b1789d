"""The embedded API, served for one test; and a real one beside it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed.certificate import Authority, Pair
from testbed.plane import ControlPlane
from tests.local.apiserver.client import Client
from trainmaster.kinds import crd
from trainmaster.local.apiserver.http.server import ApiOptions, serve_api

TOKEN = "local-token"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def pair(authority: Authority) -> Pair:
    return authority.server()


@pytest.fixture
def api_options(pair: Pair) -> ApiOptions:
    return ApiOptions(
        database=":memory:",
        token=TOKEN,
        certificate=pair.certificate,
        key=pair.key,
        definitions=crd.all_crds(),
    )


@pytest.fixture
async def api(api_options: ApiOptions, authority: Authority) -> AsyncIterator[Client]:
    async with serve_api(api_options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        yield client


@pytest.fixture(scope="session")
def real_plane(plane: ControlPlane) -> ControlPlane:
    """The test bed's control plane, once it knows our kinds."""
    plane.apply(crd.to_yaml())
    return plane


@pytest.fixture
async def real(real_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(real_plane.url, real_plane.admin_token, Path(real_plane.ca_file)) as client:
        yield client
