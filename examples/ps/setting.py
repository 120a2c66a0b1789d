"""What the operator says to a process: the DMLC_* variables, exactly as ps-lite reads them."""

import ipaddress
import socket
import sys
from collections.abc import Mapping
from typing import NamedTuple

ROLES = ("scheduler", "server", "worker")


class Setting(NamedTuple):
    """``host`` is what others reach this process by, and ``worker`` its number; both may be left open."""

    role: str
    root: tuple[str, int]
    servers: int
    workers: int
    host: str = ""
    worker: int = -1

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Setting":
        """Ends the process with a sentence when a variable is missing or makes no sense."""
        role = environ.get("DMLC_ROLE", "")
        if role not in ROLES:
            sys.exit(f"DMLC_ROLE is {role!r}: it must be one of {', '.join(ROLES)}")
        host = environ.get("DMLC_PS_ROOT_URI", "")
        if not host:
            sys.exit("DMLC_PS_ROOT_URI is missing: it says where the scheduler is")
        return cls(
            role,
            (host, _number(environ, "DMLC_PS_ROOT_PORT", least=1)),
            _number(environ, "DMLC_NUM_SERVER", least=1),
            _number(environ, "DMLC_NUM_WORKER", least=1),
            environ.get("DMLC_NODE_HOST", ""),
            _number(environ, "DMLC_WORKER_ID", least=0) if environ.get("DMLC_WORKER_ID") else -1,
        )

    def root_address(self) -> tuple[str, int]:
        """Where the scheduler listens: only on this machine if its name is of it, as in `trainmaster run`."""
        host, port = self.root
        try:
            found = str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
        except OSError:
            return "", port  # a service may get its name only after its pod has started
        return (found if ipaddress.ip_address(found).is_loopback else ""), port


def _number(environ: Mapping[str, str], name: str, *, least: int) -> int:
    text = environ.get(name, "")
    if not text.isdecimal() or int(text) < least:
        sys.exit(f"{name} is {text!r}: it must be a number, at least {least}")
    return int(text)
