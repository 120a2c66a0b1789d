"""kubectl and the pods of a local cluster: commands in them, files, terminals, ports, and what they use."""

import asyncio
import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.local.cluster import client_of, create, until, until_running
from tests.local.conftest import Up
from tests.local.kubectl import SECONDS, Kubectl, table
from tests.local.test_caller import ASK, idle, of
from trainmaster.local.node.process import pids

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands enter namespaces of Linux")

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: none
    command: [sh, -c, "echo ready; exec sleep 1000"]
    env: [{name: COLOR, value: red}]
    volumeMounts: [{name: v, mountPath: /scratch-of-p}]
  volumes: [{name: v, emptyDir: {}}]
"""


@pytest.fixture
def kubectl(binaries: Path, up: Up, state: Path, tmp_path: Path) -> Kubectl:
    """For a cluster that is up."""
    up()
    return Kubectl(binaries / "kubectl", state / "kubeconfig", tmp_path)


@pytest.fixture
async def pod(kubectl: Kubectl) -> str:
    await kubectl("create", "-f", "-", input=POD)
    await kubectl("wait", "--for=condition=Ready", "pod/p", f"--timeout={SECONDS}s")
    return "p"


def sleepers(*seconds: int) -> list[int]:
    """The processes that sleep for so long."""
    wanted = [f"sleep\0{each}\0".encode() for each in seconds]
    found = []
    for pid in pids():
        with contextlib.suppress(OSError):  # the process has ended
            if Path(f"/proc/{pid}/cmdline").read_bytes() in wanted:
                found.append(pid)
    return found


# --- exec ---


async def test_a_command_runs_as_the_programs_of_the_container_do(kubectl: Kubectl, pod: str) -> None:
    done = await kubectl.run(
        "exec", pod, "--", "sh", "-c", "echo $COLOR; ls -d /scratch*; hostname; echo no >&2; exit 3"
    )

    assert done.out.split() == ["red", "/scratch-of-p", "p"]
    assert (done.code, done.err) == (3, "no\ncommand terminated with exit code 3\n")


async def test_a_command_reads_to_the_end_of_its_input(kubectl: Kubectl, pod: str) -> None:
    done = await kubectl.run("exec", "-i", pod, "--", "wc", "-c", input="x" * 300_000)

    assert (done.code, done.out, done.err) == (0, "300000\n", "")


async def test_a_command_that_is_not_there_is_named(kubectl: Kubectl, pod: str) -> None:
    done = await kubectl.run("exec", pod, "--", "absent")

    assert done.code == 126
    assert 'exec: "absent": executable file not found in $PATH' in done.err


async def test_files_are_copied_both_ways(kubectl: Kubectl, pod: str, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "there").write_bytes(content)

    await kubectl("cp", str(tmp_path / "there"), f"{pod}:/scratch-of-p/file")
    await kubectl.run("cp", f"{pod}:/scratch-of-p/file", str(tmp_path / "back"))

    assert (tmp_path / "back").read_bytes() == content


async def test_a_command_ends_with_its_client(kubectl: Kubectl, pod: str) -> None:
    async with kubectl.background("exec", pod, "--", "sh", "-c", "sleep 4711 & sleep 4712") as process:
        await until(lambda: len(sleepers(4711, 4712)) == 2)
        process.kill()

        await until(lambda: not sleepers(4711, 4712))


async def test_a_command_ends_with_its_container(kubectl: Kubectl, pod: str) -> None:
    async with kubectl.background("exec", pod, "--", "sleep", "4713") as process:
        await until(lambda: sleepers(4713) != [])
        await kubectl("delete", "pod", pod)
        async with asyncio.timeout(SECONDS):
            _, err = await process.communicate()

    assert (process.returncode, err) == (137, b"command terminated with exit code 137\n")
    assert sleepers(4713) == []


async def test_a_command_may_ask_di_server_for_the_job_of_its_pod(kubectl: Kubectl, state: Path) -> None:
    async with client_of(state) as cluster:
        for name in ("mine", "other"):
            await create(cluster, idle(name))
        await until_running(cluster, 2)
    ask = f"""{ASK}
print(*(ask(os.environ["KUBERNETES_SERVER_URL"], *each)[0] for each in {[of("mine")[:3], of("other")[:3]]!r}))
"""

    asked = await kubectl("exec", "mine-coordinator", "--", sys.executable, "-c", ask)

    assert asked.split() == ["200", "404"]


async def test_a_shell_has_a_terminal(kubectl: Kubectl, pod: str) -> None:
    with Terminal(kubectl, "exec", "-it", pod, "--", "sh") as terminal:
        terminal.resize(33, 99)
        terminal.type("until [ \"$(stty size)\" = '33 99' ]; do sleep 0.05; done; echo $((6 * 7)) $TERM\n")
        terminal.until("42 xterm")
        terminal.type("sleep 4714\n")
        await until(lambda: sleepers(4714) != [])
        terminal.type("\x03")
        await until(lambda: sleepers(4714) == [])
        terminal.type("exit 5\n")

        assert terminal.end() == 5


class Terminal:
    """kubectl in a terminal."""

    def __init__(self, kubectl: Kubectl, *arguments: str) -> None:
        self._outer, inner = os.openpty()
        self._process = subprocess.Popen(
            [*kubectl.command, *arguments],
            env=kubectl.environ,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(inner)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._outer)

    def type(self, text: str) -> None:
        os.write(self._outer, text.encode())

    def resize(self, height: int, width: int) -> None:
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def until(self, text: str) -> None:
        shown = b""
        while text.encode() not in shown:
            shown += os.read(self._outer, 4096)

    def end(self) -> int:
        """The exit code of kubectl."""
        try:
            while os.read(self._outer, 4096):
                pass
        except OSError:  # the other end is closed
            pass
        return self._process.wait(SECONDS)


# --- port-forward ---

SERVER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            size = 0
            while data := connection.recv(65536):
                size += len(data)
            connection.sendall(b"x" * size)
"""


async def test_connections_are_forwarded_to_a_port_of_the_pod(kubectl: Kubectl) -> None:
    await kubectl("run", "q", "--image=none", "--command", "--", sys.executable, "-c", SERVER)
    await kubectl("wait", "--for=condition=Ready", "pod/q", f"--timeout={SECONDS}s")
    port = ""
    while not port:
        port = (await kubectl("logs", "q")).strip()
    async with kubectl.background("port-forward", "pod/q", f":{port}", ":1", "--address=127.0.0.1") as process:
        assert process.stdout
        assert process.stderr
        here, closed = [int((await process.stdout.readline()).split()[2].rpartition(b":")[2]) for _ in range(2)]

        answers = await asyncio.gather(*(asked(here, size) for size in (0, 10, 2_000_000)))
        with contextlib.suppress(OSError):  # kubectl resets it
            await asked(closed, 0)
        why = await process.stderr.readline()

    assert answers == [0, 10, 2_000_000]
    assert b"cannot reach 127.0.0.1:1, the address of the pod: connection refused; its containers declare none" in why


async def asked(port: int, size: int) -> int:
    """How many bytes come back for so many."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * size)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
    return len(answer)


# --- top ---

BUSY = "data = b'x' * 60_000_000\nprint('ready', flush=True)\nwhile True: pass"


async def test_top_shows_what_a_pod_and_the_machine_use(kubectl: Kubectl, pod: str) -> None:
    await kubectl("run", "busy", "--image=none", "--labels=a=b", "--command", "--", sys.executable, "-c", BUSY)
    await kubectl("wait", "--for=condition=Ready", "pod/busy", f"--timeout={SECONDS}s")
    while "ready" not in await kubectl("logs", "busy"):
        pass

    idle, busy = sorted(table(await kubectl("top", "pods", "--no-headers")), reverse=True)
    (chosen,) = table(await kubectl("top", "pods", "-l", "a=b", "--containers", "--no-headers"))
    (node,) = table(await kubectl("top", "nodes", "--no-headers"))

    assert (idle[0], busy[0], chosen[:2], node[0]) == ("p", "busy", ["busy", "busy"], "local")
    assert 57 <= int(busy[2].removesuffix("Mi")) < 200
    assert int(idle[1].removesuffix("m")) < int(busy[1].removesuffix("m"))


async def test_a_pod_that_does_not_run_uses_nothing(kubectl: Kubectl) -> None:
    await kubectl("run", "q", "--image=none", "--restart=Never", "--command", "--", "true")
    await kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/q", f"--timeout={SECONDS}s")

    assert json.loads(await kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/pods"))["items"] == []
    assert (await kubectl.run("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/q")).code == 1


# --- what is refused ---


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("attach", "p"), "`kubectl logs -f` shows the output of a container"),
        (("exec", "p", "-c", "absent", "--", "ls"), "container absent is not valid for pod p"),
    ],
)
async def test_what_does_not_go_is_said(kubectl: Kubectl, pod: str, arguments: tuple[str, ...], answer: str) -> None:
    done = await kubectl.run(*arguments)

    assert done.code == 1
    assert answer in done.err


async def test_no_command_runs_in_a_pod_that_has_ended(kubectl: Kubectl, state: Path) -> None:
    await kubectl("run", "q", "--image=none", "--restart=Never", "--command", "--", "true")
    await kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/q", f"--timeout={SECONDS}s")

    done = await kubectl.run("exec", "q", "--", "ls")

    assert done.code == 1
    assert "cannot exec into a container in a completed pod; current phase is Succeeded" in done.err
