"""Disks that are full, read-only or damaged, and who may see what of a local cluster that is up."""

import contextlib
import itertools
import json
import random
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.cluster import AITJ, api_of, client_of, create, items_of, until_running
from tests.local.conftest import Start, Up
from tests.local.program import Program, containers_of, job, role, script
from trainmaster.core.errors import ApiError
from trainmaster.core.ids import Resource
from trainmaster.kube.client import KubeCluster
from trainmaster.local.node.process import POD_UID, pids

CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
SLEEPS = script("exec sleep 600")


def sentence_of(program: Program) -> str:
    """The only thing that a command that cannot start says, beside its log."""
    code, out, err = program.end()
    [said] = [line for line in err.splitlines() if not line.startswith("{")]
    assert (code, out) == (1, ""), err
    assert err.splitlines()[-1] == said
    assert said.startswith("trainmaster: ")
    return said.removeprefix("trainmaster: ")


async def put(cluster: KubeCluster, name: str, text: str = "") -> None:
    body = {"metadata": {"name": name}, "data": {"text": text}}
    await cluster.create(CONFIG_MAP, "default", json.dumps(body).encode())


async def until_refused(cluster: KubeCluster) -> tuple[int, str]:
    """Fill the cluster with objects; why it took no more."""
    for number in range(100):
        try:
            await put(cluster, f"map-{number}", "x" * 10_000)
        except ApiError as error:
            return error.code, error.message
    raise AssertionError("it took everything")


async def kept(cluster: KubeCluster) -> dict[str, tuple[str, Any]]:
    """What must be the same before and after."""
    jobs, maps = await items_of(cluster, AITJ), await items_of(cluster, CONFIG_MAP)
    return {
        item["metadata"]["name"]: (item["metadata"]["uid"], item.get("spec", item.get("data")))
        for item in (*jobs, *maps)
    }


# --- disks ---


class Disk:
    """A small disk of its own for a folder, which only commands ``inside`` a mount namespace see."""

    def __init__(self, folder: Path, size: str) -> None:
        folder.mkdir()
        mount = f'mount -t tmpfs -o size={size},mode=700 none "{folder}" && echo mounted && read -r line'
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", mount],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        self._target = str(folder)
        self.is_there = self._holder.stdout.readline() == "mounted\n"
        self.inside = ["nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials", "--"]
        self.folder = Path(f"/proc/{self._holder.pid}/root{folder}")

    def remount(self, how: str) -> None:
        subprocess.run([*self.inside, "mount", "-o", f"remount,{how}", self._target], check=True)

    def fill(self) -> None:
        """Until not a single byte goes in."""
        with contextlib.suppress(OSError), (self.folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def empty(self) -> None:
        (self.folder / "filler").unlink()

    def close(self) -> None:
        self._holder.communicate("\n")


@pytest.fixture
def disk(state: Path) -> Iterator[Callable[[str], Disk]]:
    made: list[Disk] = []

    def disk(size: str) -> Disk:
        if not (shutil.which("unshare") and shutil.which("nsenter")):
            pytest.skip("there is no unshare or nsenter here")
        made.append(Disk(state, size))
        if not made[0].is_there:
            pytest.skip("this system does not let us mount in a user namespace")
        return made[0]

    yield disk
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("size", "what"),
    [
        pytest.param("8k", "state folder {state}: no space left on device", id="its secrets"),
        pytest.param("32k", "the database {state}/objects.db cannot be used: the disk is full", id="a database"),
        pytest.param("64k", "{state}/objects.db: the database refused a write: the disk is full", id="definitions"),
    ],
)
def test_a_disk_that_is_too_small_is_told_and_once_it_is_larger_the_cluster_starts(
    start: Start, up: Up, state: Path, disk: Callable[[str], Disk], size: str, what: str
) -> None:
    small = disk(size)
    said = sentence_of(start("up", "--state", str(state), inside=small.inside))

    assert said.startswith(what.format(state=state))
    small.remount("size=8m")
    up(inside=small.inside)


async def test_a_disk_that_becomes_full_refuses_what_is_new_and_loses_nothing(
    start: Start, up: Up, state: Path, disk: Callable[[str], Disk]
) -> None:
    full = disk("8m")
    program = up(inside=full.inside)
    async with client_of(full.folder) as cluster:
        await create(cluster, job(trainer=role(SLEEPS, 2)))
        pods = await until_running(cluster, 2)
        full.fill()
        code, why = await until_refused(cluster)
        assert code == 503
        assert "the database refused a write: the disk is full; nothing was changed" in why
        before = await kept(cluster)
        assert "job" in before
    program.kill()
    watchers = sorted(containers_of(state))

    assert "full" in sentence_of(start("up", "--state", str(state), inside=full.inside))
    full.empty()
    up(inside=full.inside)
    async with client_of(full.folder) as cluster:
        assert await kept(cluster) == before
        assert await until_running(cluster, 2) == pods
        await put(cluster, "one-more")
    assert sorted(containers_of(state)) == watchers


async def test_a_read_only_folder_is_told_and_what_is_in_it_stays(
    start: Start, up: Up, state: Path, disk: Callable[[str], Disk]
) -> None:
    fixed = disk("8m")
    program = up(inside=fixed.inside)
    async with client_of(fixed.folder) as cluster:
        await put(cluster, "a")
        before = await kept(cluster)
    program.send(signal.SIGINT)
    assert program.end()[0] == 0
    fixed.remount("ro")

    said = sentence_of(start("up", "--state", str(state), inside=fixed.inside))
    assert said.startswith(f"state folder {state}: read-only file system")
    fixed.remount("rw")
    up(inside=fixed.inside)
    async with client_of(fixed.folder) as cluster:
        assert await kept(cluster) == before


# --- what a start meets ---


async def test_a_start_that_fails_changes_nothing(up: Up, start: Start, state: Path) -> None:
    """A port that is taken, and then a second cluster on the same folder."""
    program = up()
    async with client_of(state) as cluster:
        await put(cluster, "a")
        before = await kept(cluster)
    second = sentence_of(start("up", "--state", str(state)))
    assert second.startswith(f"state folder {state} is in use by process {program.pid}; ")
    async with client_of(state) as cluster:
        assert await kept(cluster) == before
    program.kill()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = sentence_of(start("up", "--state", str(state), "--port", str(port)))
    assert taken == f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another port"
    up()
    async with client_of(state) as cluster:
        assert await kept(cluster) == before


def replaced(content: bytes, choose: random.Random) -> bytes:
    return b"not a database" * 1000


def cut(content: bytes, choose: random.Random) -> bytes:
    return content[: len(content) // 2]


def scribbled(content: bytes, choose: random.Random) -> bytes:
    """Every page but the first is noise."""
    return content[:4096] + choose.randbytes(len(content) - 4096)


def spotted(content: bytes, choose: random.Random) -> bytes:
    """Single wrong bytes: SQLite, which has no checksums, may well take them for data."""
    damaged = bytearray(content)
    for position in choose.sample(range(100, len(content)), 200):
        damaged[position] ^= 0xFF
    return bytes(damaged)


@pytest.mark.parametrize("damage", [replaced, cut, scribbled, spotted])
def test_a_damaged_database_is_told_and_left_alone(
    up: Up, start: Start, state: Path, damage: Callable[[bytes, random.Random], bytes]
) -> None:
    program = up()
    program.send(signal.SIGINT)
    assert program.end()[0] == 0
    database = state / "objects.db"
    damaged = damage(database.read_bytes(), random.Random(4))
    database.write_bytes(damaged)

    assert sentence_of(start("up", "--state", str(state))) == (
        f"the database {database} cannot be used: "
        "it is damaged or not a database of trainmaster; move it away to start with an empty one"
    )
    assert database.read_bytes() == damaged
    database.rename(state / "objects.damaged")
    up()


# --- who may see what ---


@pytest.fixture
async def cluster_at_work(up: Up, state: Path) -> Program:
    """A cluster with a job of two processes, of which its log has a lot to say."""
    program = up("--v", "5")
    async with client_of(state) as cluster:
        await create(cluster, job(trainer=role(SLEEPS, 2)))
        await until_running(cluster, 2)
    return program


def listening(pid: int) -> set[str]:
    """Addresses, as the kernel writes them, at which a process waits for others."""
    sockets = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    return {
        words[1].rpartition(":")[0]
        for table in ("tcp", "tcp6", "udp", "udp6")
        for words in map(str.split, Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:])
        if f"socket:[{words[9]}]" in sockets and (words[3] == "0A" or table.startswith("udp"))
    }


def test_cluster_and_watchers_listen_on_loopback_alone(cluster_at_work: Program, state: Path) -> None:
    addresses = listening(cluster_at_work.pid)
    assert "0100007F" in addresses
    assert all(address.endswith("7F") for address in addresses)  # 127/8: di-server has an address of its own
    for watcher in containers_of(state):
        assert listening(watcher) == set()


PATHS = (
    *("/", "/version", "/healthz", "/readyz", "/livez", "/api", "/apis", "/api/v1", "/openapi/v2", "/openapi/v3"),
    *("/metrics", "/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/namespaces/default/pods/job-trainer-0/log"),
    *("/apis/elasticdeeplearning.ai/v1/aitrainingjobs", "/nowhere", "/api/v1/namespaces/default/secrets", "//", "/%00"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
STRANGERS = ("", "Bearer", "Bearer wrong", "Basic d3Jvbmc6d3Jvbmc=", "Bearer \xe9", "token")


def test_without_the_token_every_path_is_closed(cluster_at_work: Program, state: Path) -> None:
    trusted = ssl.create_default_context(cafile=str(state / "certificate.pem"))
    for index, (path, method) in enumerate(itertools.product(PATHS, METHODS)):
        given = STRANGERS[index % len(STRANGERS)]
        request = urllib.request.Request(
            api_of(state) + path, method=method, headers={"Authorization": given} if given else {}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, context=trusted)
        with refused.value:
            assert refused.value.code == 401, (method, path, given)


def words_of(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:  # ended meanwhile
        return b""


def test_the_token_and_the_key_are_for_their_owner_alone(cluster_at_work: Program, state: Path) -> None:
    token, key = ((state / name).read_bytes().strip() for name in ("token", "key.pem"))
    secrets = [token, key.splitlines()[1]]

    holders = {path.name for path in state.rglob("*") if path.is_file() and token in path.read_bytes()}
    assert holders == {"token", "kubeconfig"}
    for path in (state, *state.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path == state:
            assert mode == 0o700
        elif path.name in ("token", "key.pem", "kubeconfig", "objects.db", "objects.db-wal", "lock"):
            assert mode == 0o600, path
    for pid in pids():
        said = words_of(pid, "cmdline")
        assert not any(secret in said for secret in secrets), pid
        environ = words_of(pid, "environ")
        assert not any(secret in environ for secret in secrets), pid
    seen = [words_of(pid, "environ") for pid in pids() if f"{POD_UID}=".encode() in words_of(pid, "environ")]
    assert len(seen) >= 2
    told = (cluster_at_work.errors() + cluster_at_work.output).encode()
    assert len(told) > 1000
    assert not any(secret in told for secret in secrets)
