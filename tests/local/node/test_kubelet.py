"""Container logs: kubectl asks the API server, which asks the node."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from testbed.admin import Admin
from testbed.certificate import Authority, Pair
from testbed.plane import ControlPlane
from tests.local.node.life import TOKEN, Scene, container
from trainmaster.settings import NODE

WORDS = "for word in one two three; do echo $word; sleep 0.01; done"


@pytest.fixture(scope="module")
def kubelet_client(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("kubelet-client"))


@pytest.fixture(scope="module")
def asking_plane(binaries: Path, kubelet_client: Authority) -> Iterator[ControlPlane]:
    """A control plane whose API server shows nodes a certificate."""
    pair = kubelet_client.client(NODE.client_name, "system:masters")
    arguments = (f"--kubelet-client-certificate={pair.certificate}", f"--kubelet-client-key={pair.key}")
    with ControlPlane(binaries=binaries, apiserver_arguments=arguments) as plane:
        yield plane


@pytest.fixture
async def scene(
    asking_plane: ControlPlane,
    kubelet_client: Authority,
    node_pair: Pair,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Scene]:
    name = f"t{abs(hash(request.node.name)) % 10**8}"
    async with Admin.of(asking_plane) as admin:
        await admin.create("namespaces", {"metadata": {"name": name}})
        scene = Scene(asking_plane, admin, name, tmp_path, node_pair, client_ca=kubelet_client.ca_file)
        yield scene
        scene.sweep()


async def test_kubectl_shows_logs(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", WORDS)
        await scene.ended("a")

        assert await scene.logs("a") == "one\ntwo\nthree\n"
        assert await scene.logs("a", "--tail=2") == "two\nthree\n"
        assert await scene.logs("a", "--tail=0") == ""
        assert await scene.logs("a", "--limit-bytes=5") == "one\nt"
        assert await scene.logs("a", "--since=1h") == "one\ntwo\nthree\n"
        assert await scene.logs("a", "--since-time=2100-01-01T00:00:00Z") == ""
        stamped = (await scene.logs("a", "--timestamps", "--tail=1")).split()
        assert (len(stamped[0]), stamped[1]) == (30, "three")


async def test_kubectl_chooses_a_container(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", container("echo x", name="x"), container("echo y", name="y"))
        await scene.ended("a")

        assert [await scene.logs("a", f"--container={name}") for name in "xy"] == ["x\n", "y\n"]


async def test_kubectl_shows_the_log_before_the_restart(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "echo x >> runs; wc -l < runs; [ $(wc -l < runs) -ge 2 ]", policy="OnFailure")
        await scene.ended("a")

        assert [await scene.logs("a", "--previous"), await scene.logs("a")] == ["1\n", "2\n"]


async def test_kubectl_follows_until_the_end(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
        await scene.running("a")
        following = await asyncio.create_subprocess_exec(
            *scene.kubectl("logs", "--follow", "a"), stdout=subprocess.PIPE
        )
        assert following.stdout is not None
        first = await following.stdout.readline()
        (scene.workdir / "go").touch()
        rest = await following.stdout.read()

        assert await following.wait() == 0
    assert (first, rest) == (b"one\n", b"two\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"Authorization": "Bearer nonsense"}, 401), ({"Authorization": f"Bearer {TOKEN}"}, 200)],
)
async def test_client_without_token_and_certificate_is_refused(
    scene: Scene, headers: dict[str, str], status: int
) -> None:
    async with scene.node():
        await scene.pod("a", "echo hello")
        await scene.ended("a")
        node = await scene.admin.get("nodes", None, scene.name)
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        url = f"https://127.0.0.1:{port}/containerLogs/{scene.namespace}/a/main"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
            async with session.get(url, headers=headers) as response:
                text = await response.text()

    assert (response.status, text) == (status, "hello\n" if status == 200 else "Unauthorized")


async def test_a_certificate_of_the_same_authority_for_somebody_else_is_refused(
    scene: Scene, kubelet_client: Authority
) -> None:
    """The CA of a cluster signs those of all its users."""
    pair = kubelet_client.client("alice", name="alice")
    tls = ssl.create_default_context(cafile=str(scene.pair.certificate))
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(pair.certificate, pair.key)
    async with scene.node():
        await scene.pod("a", "echo hello")
        await scene.ended("a")
        node = await scene.admin.get("nodes", None, scene.name)
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        url = f"https://127.0.0.1:{port}/containerLogs/{scene.namespace}/a/main"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=tls) as response:
            text = await response.text()

    assert (response.status, text) == (403, "Forbidden: alice is not kube-apiserver-kubelet-client")
