"""Logs of trainmaster.kube.client: the request, lines, parts, ends."""

import pytest

from tests.kube.build import a_config
from tests.kube.conftest import Connect, Serve
from tests.kube.serve import hang, status, stream
from trainmaster.core.errors import NotFound, Unreachable
from trainmaster.core.ids import Key
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.log import LONGEST_LINE

POD = Key("ml", "mnist-worker-0")


async def lines_of(cluster: KubeCluster) -> list[bytes]:
    async with cluster.log(POD, "main") as lines:
        return [line async for line in lines]


async def test_the_request_names_pod_and_container(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(), stream())
    cluster = await connect(a_config(server.url))
    await lines_of(cluster)
    async with cluster.log(POD, "main", follow=True, previous=True, tail=0) as lines:
        assert [line async for line in lines] == []

    assert [request.path for request in server.seen] == [
        "/api/v1/namespaces/ml/pods/mnist-worker-0/log?container=main",
        "/api/v1/namespaces/ml/pods/mnist-worker-0/log?container=main&follow=true&previous=true&tailLines=0",
    ]


async def test_lines_are_whole_and_empty_ones_are_kept(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(b"one\n\nt", b"wo\r\nthr", b"ee"))
    cluster = await connect(a_config(server.url))

    assert await lines_of(cluster) == [b"one", b"", b"two\r", b"three"]


async def test_a_line_without_end_comes_in_parts(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(*[b"x" * 1_000_000] * 5))
    cluster = await connect(a_config(server.url))
    lines = await lines_of(cluster)

    assert b"".join(lines) == b"x" * 5_000_000
    assert all(len(line) >= LONGEST_LINE for line in lines[:-1])


async def test_a_pod_that_does_not_exist_is_not_found(serve: Serve, connect: Connect) -> None:
    server = await serve(status(404, "NotFound", 'pods "mnist-worker-0" not found'))
    cluster = await connect(a_config(server.url))

    with pytest.raises(NotFound, match="read the log of pods ml/mnist-worker-0: "):
        await lines_of(cluster)


async def test_a_server_that_falls_silent_is_given_up_unless_followed(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(b"one\n", then=lambda: hang(None)))  # type: ignore[arg-type]
    cluster = await connect(a_config(server.url), watch_idle=0.05)

    with pytest.raises(Unreachable, match="read the log of pods ml/mnist-worker-0: no answer within"):
        await lines_of(cluster)
