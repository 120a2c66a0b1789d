"""A real `trainmaster operator` process against a control plane, for tests that treat it as users do.

    with OperatorProcess(plane, args=["--thread-num=4"]) as operator:
        ...
        assert "workqueue_depth" in operator.metrics()
        assert operator.terminate() == 0

It is the user `operator` of the plane and may do what deploy/rbac.yaml says. Synchronous like `plane`; `async with`
does its waiting in a thread, which a test must use whose own event loop serves the API (see `server`).
"""

import asyncio
import http.client
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Self

import yaml

from testbed.answer import Refused
from testbed.plane import free_port
from testbed.process import PortTaken, Process, StillRunning, Watchdog

if TYPE_CHECKING:
    from testbed.plane import ControlPlane

REPOSITORY = Path(__file__).parent.parent
RBAC = REPOSITORY / "deploy" / "rbac.yaml"
COMMAND = Path(sys.executable).parent / "trainmaster"

START_ATTEMPTS = 4
START_TIMEOUT = 60.0
STOP_TIMEOUT = 40.0
TAIL = 8000

_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/dijobs.diengine.opendilab.org"
_BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/trainmaster-operator"


def crds() -> str:
    """The definitions of all job kinds, as this checkout prints them."""
    return subprocess.run([COMMAND, "crds"], capture_output=True, text=True, check=True, env=_environ()).stdout


def install(plane: "ControlPlane") -> None:
    """CRDs and RBAC, once a plane. What somebody installed before stays as it is."""
    try:
        plane.request("GET", _BINDING if plane.has_rbac else _CRD)
    except Refused as refused:
        if refused.code != 404:
            raise
        plane.apply(crds())
        if plane.has_rbac:
            plane.apply(RBAC)  # last, because its presence says that all is there


def election_rights(namespace: str, user: str) -> str:
    """The rights of deploy/rbac.yaml on Leases, in another namespace."""
    bodies = [body for body in yaml.safe_load_all(RBAC.read_text()) if "election" in body["metadata"]["name"]]
    for body in bodies:
        body["metadata"]["namespace"] = namespace
        if body["kind"] == "RoleBinding":
            body["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    return yaml.safe_dump_all(bodies)


class OperatorProcess:
    """One operator. `server` is another address of the API, say of a proxy; `args` are further options.

    With `pod_uid` it is a container of that pod, and so is the process that is started in its place.
    `election` is the namespace of its Leases, which it gets the rights of deploy/rbac.yaml for. Without one it always
    leads: several operators of one plane would wait for each other.
    With `is_waited_for` False it is not waited for until /readyz says yes: for an operator that cannot get ready.
    """

    def __init__(
        self,
        plane: "ControlPlane",
        *,
        server: str | None = None,
        args: Sequence[str] = (),
        user: str = "operator",
        verbosity: int = 4,
        election: str = "",
        pod_uid: str = "",
        is_waited_for: bool = True,
    ) -> None:
        self._plane = plane
        self._server = server
        self._args = tuple(args)
        self._user = user
        self._verbosity = verbosity
        self._election = election
        self._pod_uid = pod_uid
        self._is_waited_for = is_waited_for

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it; its stores are complete when this returns."""
        install(self._plane)
        if self._election and self._plane.has_rbac:
            self._plane.apply(election_rights(self._election, self._plane.users[self._user].name))
        self.folder = Path(tempfile.mkdtemp(prefix="trainmaster-operator-"))
        self.log_file = self.folder / "operator.log"
        self._watchdog = Watchdog(self.folder)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it now, however it is, and remove its folder."""
        self.kill()
        self._watchdog.close(keep=False)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.show_log()
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.__exit__, *error)

    def terminate(self, timeout: float = STOP_TIMEOUT) -> int:
        """SIGTERM, as a kubelet does, and wait for the end; answers the exit code."""
        self._process.send(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = STOP_TIMEOUT) -> int:
        """Wait until it ends by itself; answers the exit code."""
        code = self._process.wait(timeout)
        if code is None:
            raise StillRunning(f"the operator is still running after {timeout:.0f} s; {self.log[-TAIL:]}")
        return code

    def kill(self) -> None:
        """SIGKILL, as a crash does. One that has ended already stays as it is."""
        self._process.kill()

    def come_again(self) -> None:
        """SIGKILL, and then another one in its place."""
        self.kill()
        self._start()

    def pause(self) -> None:
        """Stop it in its tracks; when this returns, it has stopped."""
        self._process.pause()

    def resume(self) -> None:
        """Let a paused operator go on."""
        self._process.send(signal.SIGCONT)

    def is_running(self) -> bool:
        """Has not ended; a paused one is running."""
        return self._process.is_running()

    # -- looking at it -------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Of the operator itself, no shell in between."""
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it said so far."""
        return self.log_file.read_text(errors="replace")

    def metrics(self) -> str:
        """What /metrics answers."""
        return _get(self.metrics_port, "/metrics")[1]

    def is_ready(self) -> bool:
        """What /readyz answers; False without an answer."""
        try:
            return _get(self.health_port, "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def show_log(self) -> None:
        """Print the end of the log: pytest shows it with a failure."""
        print(f"--- the operator's log, its end ---\n{self.log[-TAIL:]}", file=sys.stderr)

    # -- inside --------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            self.metrics_port, self.health_port = free_port(), free_port()
            self.log_file.unlink(missing_ok=True)
            self._process = Process(
                self._command(), log=self.log_file, environ=self._environ(), watchdog=self._watchdog
            )
            if not self._is_waited_for:
                return
            try:
                self._process.wait_ready(self.is_ready, within=START_TIMEOUT)
            except PortTaken:
                if attempt == START_ATTEMPTS:
                    raise
                self.kill()
            else:
                return

    def _environ(self) -> dict[str, str]:
        return _environ(self.folder) | ({"POD_UID": self._pod_uid} if self._pod_uid else {})

    def _command(self) -> list[str | Path]:
        master = ["--master", self._server] if self._server else []
        return [
            COMMAND,
            "operator",
            "--kubeconfig",
            self._plane.kubeconfig(self._user),
            *master,
            "--metrics-bind-address",
            f"127.0.0.1:{self.metrics_port}",
            "--health-probe-bind-address",
            f"127.0.0.1:{self.health_port}",
            "--v",
            str(self._verbosity),
            f"--leader-elect-resource-namespace={self._election}" if self._election else "--leader-elect=false",
            *self._args,
        ]


def _environ(home: Path | None = None) -> dict[str, str]:
    """No proxy settings, no kubeconfig of the user; PYTHONPATH, so that a changed copy can be run."""
    kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "LANG") if key in os.environ}
    return {**kept, "HOME": str(home or Path.home())}


def _get(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", path)
        with connection.getresponse() as response:
            return response.status, response.read().decode()
