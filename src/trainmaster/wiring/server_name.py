"""The names that di-server has on a cluster, in a local cluster.

DI-engine's shipped configurations and the programs of nervex-operator's examples name it, and the environment does not
override them. So di-server also listens on the port of these names, at a loopback address that no other local cluster
has, and pods resolve the names to it.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import msgspec

from trainmaster.core.ids import Key
from trainmaster.http_server import open_listener
from trainmaster.local.node.address import SERVERS, addresses
from trainmaster.local.node.name import service_names

SERVICES = (Key("di-system", "di-server"), Key("nervex-system", "nervex-server"))
PORT = 8080
TRIES = 16


class ServerName(msgspec.Struct, frozen=True):
    """``listener`` is the socket at the address of the names; None if they do not resolve."""

    listener: socket.socket | None = None
    warning: str = ""
    """Why there is no listener, if one was requested."""

    @property
    def services(self) -> dict[Key, str]:
        """The address of each service."""
        return dict.fromkeys(SERVICES, self.listener.getsockname()[0]) if self.listener else {}

    @property
    def hosts(self) -> list[str]:
        """Names and address with the port, as a request names its server."""
        names = [name for service in SERVICES for name in service_names(service.namespace, service)]
        return [f"{name}:{PORT}" for name in (*names, *set(self.services.values()))]


@contextmanager
def server_name(folder: Path) -> Iterator[ServerName]:
    """Listens while the block runs. ``folder`` is the state folder: a cluster usually has the same address again."""
    try:
        listener = _listen(folder)
    except OSError as error:
        yield ServerName(warning=_warning(error))
        return
    with listener:
        yield ServerName(listener)


def _listen(folder: Path) -> socket.socket:
    """Raises ``OSError`` if the port is used at all addresses that are tried."""
    problem = OSError("this machine has no IPv4")
    for address in islice(addresses(SERVERS, str(folder)), TRIES):
        try:
            if (listener := open_listener(socket.AF_INET, (address, PORT))) is not None:
                return listener
        except OSError as error:
            problem = error
    raise problem


def _warning(error: OSError) -> str:
    names = " and ".join(f"{service.name}.{service.namespace}" for service in SERVICES)
    because = os.strerror(error.errno).lower() if error.errno else str(error)
    return (
        f"the names {names} do not resolve in pods, because di-server cannot listen on port {PORT} of a loopback "
        f"address of its own ({because}); jobs find di-server by KUBERNETES_SERVER_URL; if a program or its "
        f"configuration (system_addr, --server) has one of these names, remove it, or end the program that uses "
        f"port {PORT}"
    )
