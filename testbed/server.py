"""A real `trainmaster server` process against a control plane: di-server, as its clients know it.

    with ServerProcess(plane) as server:
        requests.get(f"{server.url}/v1alpha1/replicas")

Started, watched and ended like an operator. It is the user `server` of the plane and may do what deploy/rbac.yaml says.
A server that was killed comes again on its port, as behind a Service.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.operator import COMMAND, OperatorProcess
from testbed.plane import free_port

if TYPE_CHECKING:
    from testbed.plane import ControlPlane


class ServerProcess(OperatorProcess):
    """One di-server; the arguments are those of OperatorProcess."""

    def __init__(
        self, plane: "ControlPlane", *, server: str | None = None, args: Sequence[str] = (), user: str = "server"
    ) -> None:
        super().__init__(plane, server=server, args=args, user=user)
        self._port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _command(self) -> list[str | Path]:
        self.metrics_port = self.health_port = self._port
        master = ["--master", self._server] if self._server else []
        return [
            COMMAND,
            "server",
            "--kubeconfig",
            self._plane.kubeconfig(self._user),
            *master,
            "--bind-address",
            f"127.0.0.1:{self._port}",
            "--shutdown-delay-duration",
            "0s",
            "--v",
            str(self._verbosity),
            *self._args,
        ]
