"""Names of pods and services for Python programs, where a private /etc/hosts is not possible.

Python imports this module at its start, from PYTHONPATH. Each name lookup reads the hosts file in TRAINMASTER_HOSTS
first, since pods are created and deleted. After that the user's own sitecustomize is run, if there is one.
"""

import importlib.machinery
import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import Any


def _address(host: Any) -> Any:
    """The address of a name in the hosts file; other names are returned unchanged."""
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if not isinstance(name, str) or not name:
        return host
    wanted = name.rstrip(".").lower()
    try:
        with Path(os.environ.get("TRAINMASTER_HOSTS", "")).open(encoding="utf-8") as source:
            for line in source:
                address, *names = line.partition("#")[0].split() or [""]
                if wanted in names:
                    return address
    except OSError:
        pass
    return host


def _first(function: Any) -> Any:
    """The function, with its first argument resolved."""

    def looked_up(host: Any, *arguments: Any, **options: Any) -> Any:
        return function(_address(host), *arguments, **options)

    return looked_up


def _place(function: Any) -> Any:
    """The method of a socket, with the host of its address resolved: ``connect`` would resolve it in C."""

    def looked_up(self: Any, address: Any) -> Any:
        if isinstance(address, tuple) and self.family in (socket.AF_INET, socket.AF_INET6):
            address = (_address(address[0]), *address[1:])
        return function(self, address)

    return looked_up


def _patch() -> None:
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        setattr(socket, name, _first(getattr(socket, name)))
    for name in ("connect", "connect_ex", "bind"):
        setattr(socket.socket, name, _place(getattr(socket.socket, name)))


def _run_next() -> None:
    """Runs the sitecustomize that Python would import without this one."""
    here = Path(__file__).resolve().parent
    others = [path for path in sys.path if Path(path).resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_patch()
_run_next()
