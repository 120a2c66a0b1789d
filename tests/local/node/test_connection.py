"""Whose process has the other end of a connection: real processes, below a program with the command line of a shim."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainmaster.local.node.connection import calling_pod

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

CONNECT = """
import os, signal, socket, sys
{before}
line = socket.socket({family})
line.connect(({host!r}, int(os.environ["PORT"])))
signal.pause()
"""
IPV4 = {"family": "socket.AF_INET", "host": "127.0.0.1"}
MAPPED = {"family": "socket.AF_INET6", "host": "::ffff:127.0.0.1"}
CHILD = "if os.fork(): os.wait()"
ANOTHER_USER = "os.setuid(65534)"
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def connection(script: str, *more: str) -> Iterator[socket.socket]:
    """The server's end of a connection that a program opens; ``more`` are words of its command line."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        environ = {"PORT": str(server.getsockname()[1])}
        process = subprocess.Popen([sys.executable, "-c", script, *more], env=environ, start_new_session=True)
        try:
            line, _ = server.accept()
            with line:
                yield line
        finally:
            os.killpg(process.pid, 9)
            process.wait()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(CONNECT.format(before="", **IPV4), id="the program"),
        pytest.param(CONNECT.format(before=CHILD, **IPV4), id="its child"),
        pytest.param(CONNECT.format(before=CHILD, **MAPPED), id="by an IPv6 socket"),
        pytest.param(CONNECT.format(before=ANOTHER_USER, **IPV4), id="as another user, of root", marks=ONLY_ROOT),
    ],
)
def test_a_connection_of_a_process_below_a_shim_is_of_the_shims_pod(tmp_path: Path, script: str) -> None:
    spec = tmp_path / "pods" / "the-uid" / "containers" / "main" / "0" / "spec.json"
    shim = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"

    with connection(shim, "/x/shim.pyc", "run", str(spec)) as line:
        assert calling_pod(tmp_path, line.getpeername(), line.getsockname()) == "the-uid"
        assert calling_pod(tmp_path / "other", line.getpeername(), line.getsockname()) == ""


def test_a_connection_of_any_other_process_is_of_no_pod(tmp_path: Path) -> None:
    with connection(CONNECT.format(before="", **IPV4)) as line:
        assert calling_pod(tmp_path, line.getpeername(), line.getsockname()) == ""


def test_a_connection_that_is_closed_is_of_no_pod(tmp_path: Path) -> None:
    with connection(CONNECT.format(before="", **IPV4)) as line:
        ends = line.getpeername(), line.getsockname()

    assert calling_pod(tmp_path, *ends) == ""
