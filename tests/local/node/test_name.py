"""Names of pods and services: the text, the file, and whether programs find them."""

from pathlib import Path

import pytest

from tests.local.node.build import a_pod
from tests.local.node.life import PYTHON, Scene, container
from trainmaster.core.ids import Key
from trainmaster.local.node.name import NamedPod, NamedService, files_first, hosts_text, overwrite, resolver_mounts

BASE = "127.0.0.1 localhost\n10.0.0.7 printer\n"


def names_in(text: str) -> set[str]:
    words = (line.partition("#")[0].split() for line in text.splitlines())
    return {name for address, *names in filter(None, words) for name in names if address == "127.0.0.1"}


def addresses_in(text: str, name: str) -> set[str]:
    words = (line.partition("#")[0].split() for line in text.splitlines())
    return {address for address, *names in filter(None, words) if name in names}


@pytest.mark.parametrize(
    ("services", "pods", "names"),
    [
        ([], [], set()),
        (
            [NamedService(Key("here", "svc"))],
            [],
            {"svc", "svc.here", "svc.here.svc", "svc.here.svc.cluster.local"},
        ),
        ([NamedService(Key("there", "svc"))], [], {"svc.there", "svc.there.svc", "svc.there.svc.cluster.local"}),
        ([], [NamedPod(Key("here", "p"))], {"p", "p.here"}),
        ([], [NamedPod(Key("there", "p"))], {"p.there"}),
        (
            [],
            [NamedPod(Key("here", "p"), "h", "sub")],
            {"p", "p.here", "h", "h.sub", "h.sub.here", "h.sub.here.svc", "h.sub.here.svc.cluster.local"},
        ),
        (
            [],
            [NamedPod(Key("there", "p"), "", "sub")],
            {"p.there", "p.sub.there", "p.sub.there.svc", "p.sub.there.svc.cluster.local"},
        ),
    ],
)
def test_short_names_only_within_the_namespace(
    services: list[NamedService], pods: list[NamedPod], names: set[str]
) -> None:
    text = hosts_text("here", services, pods, BASE)

    assert names_in(text) == {"localhost"} | names
    assert "10.0.0.7 printer\n" in text


def test_a_name_is_never_the_alias_of_another_pod() -> None:
    """What a resolver calls canonical is the first name of the line."""
    text = hosts_text(
        "n", [NamedService(Key("n", "web"))], [NamedPod(Key("n", "web")), NamedPod(Key("n", "sig"))], BASE
    )

    assert [line.split()[1] for line in text.splitlines() if "web" in line.split()] == ["web.n"]
    assert not [line for line in text.splitlines() if {"web", "sig"} <= set(line.split())]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        pytest.param({}, {"127.0.0.1"}, id="no selector"),
        pytest.param({"job": "b"}, {"127.0.0.1"}, id="no pods"),
        pytest.param({"job": "a"}, {"127.64.0.1", "127.64.0.2"}, id="all pods of a job"),
        pytest.param({"job": "a", "rank": "1"}, {"127.64.0.2"}, id="by two labels"),
        pytest.param({"job": "c"}, {"127.0.0.1"}, id="a pod without an address of its own"),
    ],
)
def test_a_service_has_the_addresses_of_its_pods(selector: dict[str, str], found: set[str]) -> None:
    pods = [
        NamedPod(Key("n", "p0"), "", "s", "127.64.0.1", {"job": "a", "rank": "0"}),
        NamedPod(Key("n", "p1"), "", "s", "127.64.0.2", {"job": "a", "rank": "1"}),
        NamedPod(Key("elsewhere", "p2"), "", "s", "127.64.0.3", {"job": "a", "rank": "1"}),
        NamedPod(Key("n", "p3"), labels={"job": "c"}),
    ]

    text = hosts_text("n", [NamedService(Key("n", "s"), selector)], pods, BASE)

    assert addresses_in(text, "s.n.svc.cluster.local") == found


def test_a_service_does_not_select_pods_that_have_ended() -> None:
    labels = {"labels": {"job": "a"}}
    pods = [
        NamedPod.of(a_pod(metadata={**labels, "name": "p0"}, status={"phase": "Failed"}), "127.64.0.1"),
        NamedPod.of(a_pod(metadata={**labels, "name": "p1"}), "127.64.0.2"),
    ]

    text = hosts_text("ns", [NamedService(Key("ns", "s"), {"job": "a"})], pods, BASE)

    assert addresses_in(text, "s") == {"127.64.0.2"}
    assert addresses_in(text, "p0") == {"127.64.0.1"}


def test_every_name_of_a_pod_has_its_address_and_the_full_one_is_canonical() -> None:
    text = hosts_text("n", [NamedService(Key("n", "p"))], [NamedPod(Key("n", "p"), "h", "s", "127.64.0.1")], BASE)

    (line,) = [line.split() for line in text.splitlines() if line.startswith("127.64.0.1\t")]
    assert line[1] == "h.s.n.svc.cluster.local"
    assert {name for name in line[1:] if addresses_in(text, name) == {"127.64.0.1"}} == {
        *("p", "p.n", "p.n.svc", "p.n.svc.cluster.local"),
        *("h", "h.s", "h.s.n", "h.s.n.svc", "h.s.n.svc.cluster.local"),
    }


def test_a_name_is_that_of_the_newest_pod() -> None:
    old, new = (NamedPod(Key("n", "p"), "", "s", address) for address in ("127.64.0.1", "127.64.0.2"))

    assert addresses_in(hosts_text("n", [], [old, new], BASE), "p.s") == {"127.64.0.2"}


def test_a_service_of_the_cluster_has_its_own_address_in_every_namespace() -> None:
    text = hosts_text("n", [NamedService(Key("di-system", "di-server"), address="127.32.0.1")], [], BASE)

    for name in ("di-server.di-system", "di-server.di-system.svc", "di-server.di-system.svc.cluster.local"):
        assert addresses_in(text, name) == {"127.32.0.1"}
    assert addresses_in(text, "di-server") == set()


def test_no_line_is_too_long_for_a_resolver() -> None:
    text = hosts_text("n", [NamedService(Key("n", f"{'s' * 50}-{number}")) for number in range(100)], [], BASE)

    assert max(map(len, text.splitlines())) < 1024


@pytest.mark.parametrize(("old", "new"), [("", "long text\n"), ("long text\n", "short\n"), ("same\n", "same\n")])
def test_file_is_rewritten_in_place(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(old)
    inode = file.stat().st_ino

    overwrite(file, new)

    assert (file.read_text(), file.stat().st_ino) == (new, inode)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("hosts: files dns", "hosts: files dns"),
        ("hosts:\tfiles mdns4_minimal [NOTFOUND=return] dns", "hosts:\tfiles mdns4_minimal [NOTFOUND=return] dns"),
        ("hosts: resolve [!UNAVAIL=return] files dns", "hosts: files resolve [!UNAVAIL=return] dns"),
        ("hosts: dns # far away", "hosts: files dns# far away"),
    ],
)
def test_programs_look_into_the_hosts_file_first(line: str, wanted: str) -> None:
    rest = "passwd: files\n{}\nnetworks: files\n"

    assert files_first(rest.format(line)) == rest.format(wanted)


def test_resolver_that_looks_elsewhere_first_is_covered(tmp_path: Path) -> None:
    (tmp_path / "nscd").mkdir()
    (tmp_path / "nscd" / "socket").touch()
    (tmp_path / "nsswitch.conf").write_text("hosts: dns files\n")

    mounts = resolver_mounts(tmp_path / "own", etc=tmp_path, run=tmp_path)

    assert [mount["target"] for mount in mounts] == [f"{tmp_path}/nsswitch.conf", f"{tmp_path}/nscd/socket"]
    assert Path(mounts[0]["source"]).read_text() == "hosts: files dns\n"
    assert resolver_mounts(tmp_path / "own", etc=tmp_path / "own", run=tmp_path / "own") == []


def service(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "clusterIP": "None"}}


async def test_any_program_finds_pods_and_services(scene: Scene) -> None:
    await scene.admin.create("services", service("svc"), scene.namespace)
    names = [f"b.{scene.namespace}", "svc", f"svc.{scene.namespace}.svc.cluster.local", "a", "localhost"]
    script = f"until getent hosts b; do sleep 0.02; done; for name in {' '.join(names)}; do getent hosts $name; done"
    async with scene.node():
        await scene.pod("b", "sleep 1000")
        await scene.pod("a", f"set -e; {script} > said")
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded"
    assert {line.split()[0] for line in (scene.workdir / "said").read_text().splitlines()} <= {"127.0.0.1", "::1"}


async def test_running_pods_resolve_a_later_pod(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "touch up; until getent hosts later svc-later; do sleep 0.02; done")
        await scene.appears("up")
        await scene.pod("later", "sleep 1000")
        await scene.admin.create("services", service("svc-later"), scene.namespace)

        assert (await scene.ended("a"))["status"]["phase"] == "Succeeded"


RESOLVE = """
import socket, sys, time
import sitecustomize
while True:
    try:
        found = socket.gethostbyname("b")
        break
    except OSError:
        time.sleep(0.02)
server = socket.create_server(("svc", 0))
port = server.getsockname()[1]
socket.create_connection(("b", port)).close()
client = socket.socket()
client.connect((b"svc".decode(), port))
client.close()
server.close()
open("said", "w").write(f"{found} {sitecustomize.MINE}")
"""


async def test_python_programs_find_them_without_namespaces(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a sitecustomize of the user's own is still run."""
    monkeypatch.setenv("TRAINMASTER_NO_NAMESPACES", "1")
    (scene.workdir / "own").mkdir()
    (scene.workdir / "own" / "sitecustomize.py").write_text("MINE = 'still here'")
    env = [{"name": "PYTHONPATH", "value": str(scene.workdir / "own")}]
    await scene.admin.create("services", service("svc"), scene.namespace)
    async with scene.node():
        await scene.pod("b", "sleep 1000")
        await scene.pod("a", container(command=[PYTHON, "-c", RESOLVE], env=env))
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded"
    assert (scene.workdir / "said").read_text() == "127.0.0.1 still here"
