"""trainmaster.kube.master: ``--master`` alone, as in the trainingjob-operator's guide."""

from collections.abc import Awaitable, Callable

import pytest

from testbed.plane import ControlPlane
from tests.kube.conftest import Connect, Serve
from tests.kube.serve import Answer, ApiServer
from trainmaster.core.errors import BadConfig
from trainmaster.kube.kubeconfig import load_config

HTTPS = b"Client sent an HTTP request to an HTTPS server.\n"
ANONYMOUS = b'{"kind":"Status","message":"namespaces is forbidden: User \\"system:anonymous\\" cannot get","code":403}'
ADVICE = r"; add --kubeconfig FILE: credentials come from it, and --master replaces its address$"


def master(server: ApiServer) -> str:
    return server.url.removeprefix("http://")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(Answer(400, HTTPS), "an HTTP request to an HTTPS server", id="https"),
        pytest.param(Answer(401, b"{}"), "401", id="anonymous requests are not allowed"),
        pytest.param(Answer(403, ANONYMOUS), "system:anonymous", id="anonymous has no rights"),
    ],
)
async def test_a_server_that_needs_credentials_is_an_error_at_the_start(
    serve: Serve, connect: Connect, answer: Answer, says: str
) -> None:
    server = await serve(answer)

    with pytest.raises(BadConfig, match=rf"^--master {server.url} has no credentials.*{says}.*{ADVICE}"):
        await connect(load_config(master=master(server)))


async def test_a_certificate_that_is_not_trusted_is_an_error_at_the_start(
    tls_server: Callable[..., Awaitable[ApiServer]], connect: Connect
) -> None:
    server = await tls_server()

    with pytest.raises(BadConfig, match=rf"certificate is not trusted.*{ADVICE}"):
        await connect(load_config(master=server.url))


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"{}"),
        pytest.param(Answer(403, b'{"kind":"Status","message":"User \\"ann\\" cannot get"}'), id="kubectl proxy"),
        pytest.param(Answer(404), id="no namespace default"),
    ],
)
async def test_a_server_that_needs_none_is_used(serve: Serve, connect: Connect, answer: Answer) -> None:
    server = await serve(answer)

    await connect(load_config(master=master(server)))

    assert len(server.seen) == 1


async def test_a_real_api_server_needs_credentials(plane: ControlPlane, connect: Connect) -> None:
    address = plane.url.removeprefix("https://")

    with pytest.raises(BadConfig, match=rf"^--master http://{address} has no credentials.*{ADVICE}"):
        await connect(load_config(master=address))
