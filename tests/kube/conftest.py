"""Servers that are stopped, and an environment in which no cluster and no proxy can be found by chance."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from tests.kube.certificate import Authority
from tests.kube.serve import ApiServer, Handler, RawServer
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Config

S = TypeVar("S", ApiServer, RawServer)
AnyServer = TypeVar("AnyServer", bound=RawServer)


class Serve(Protocol):
    def __call__(self, *answers: Handler, context: ssl.SSLContext | None = None) -> Awaitable[ApiServer]: ...


Connect = Callable[..., Awaitable[KubeCluster]]
Run = Callable[[AnyServer], Awaitable[AnyServer]]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def run(stack: AsyncExitStack) -> Run[Any]:
    """Start a server of the test's own making."""

    async def start(server: Any) -> Any:
        await server.start()
        stack.push_async_callback(server.stop)
        return server

    return start


@pytest.fixture
def serve(run: Run[Any]) -> Serve:
    """Start a scripted API server: ``await serve(Answer(404), Answer(200))``."""

    async def start(*answers: Handler, context: ssl.SSLContext | None = None) -> ApiServer:
        server: ApiServer = await run(ApiServer(answers, context))
        return server

    return start


@pytest.fixture
def connect(stack: AsyncExitStack) -> Connect:
    """A client that is closed, before its server is."""

    async def start(config: Config, **options: Any) -> KubeCluster:
        return await stack.enter_async_context(KubeCluster(config, **options))

    return start


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("cluster-ca")


@pytest.fixture(scope="session")
def stranger() -> Authority:
    return Authority("another-ca")


@pytest.fixture
def tls_server(serve: Serve, authority: Authority, tmp_path: Path) -> Callable[..., Awaitable[ApiServer]]:
    """A server whose certificate is for 127.0.0.1 and api.test."""

    async def start(*answers: Handler, clients: Authority | None = None, names: tuple[str, ...] = ()) -> ApiServer:
        context = authority.serving(tmp_path, names=names or ("127.0.0.1", "api.test"), clients=clients)
        return await serve(*answers, context=context)

    return start
