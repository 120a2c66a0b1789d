"""Which pod the other end of a connection on this machine belongs to.

Pods share the machine's network, so an address says nothing. The kernel knows the socket at the other end; a process
has it open; and every process of a container is below the container's shim, which is a child subreaper: daemons and
programs that changed their user or environment, too. So is a command of ``kubectl exec``. Processes of other users are
below no shim of ours.
"""

import os
import socket
import struct
from pathlib import Path

from trainmaster.local.node.process import RUN, SESSION, parent_of, pids, pod_of, running_shims

Address = tuple[str, int]

TRIES = 3
"""A parent that ends while processes are listed hides its children, until the next list."""
_TABLES = (("tcp", ""), ("tcp6", "0000000000000000FFFF0000"))
"""Files of /proc/net, and what comes before an IPv4 address in them: programs may use IPv6 sockets for IPv4."""
_UID, _INODE = 7, 9
"""Columns."""


def calling_pod(folder: Path, client: Address, server: Address) -> str:
    """The uid of the pod of this node whose process has the client's end; empty if there is none."""
    for _ in range(TRIES):
        found = _socket(client, server)
        if found is None or os.geteuid() not in (0, found[0]):  # only root has pods with processes of other users
            return ""
        if pod := _pod_with(folder, found[1]):
            return pod
    return ""


def _socket(client: Address, server: Address) -> tuple[int, str] | None:
    """Owner and inode of the client's socket; None if it is closed."""
    for table, prefix in _TABLES:
        wanted = [f"{prefix}{_hexadecimal(end)}" for end in (client, server)]
        try:
            lines = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()
        except OSError:  # a kernel without IPv6
            continue
        for columns in map(str.split, lines):
            if columns[1:3] == wanted:
                return int(columns[_UID]), columns[_INODE]
    return None


def _hexadecimal(address: Address) -> str:
    """As in /proc/net/tcp: the bytes of an address as an integer of this machine."""
    host, port = address
    return f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"


def _pod_with(folder: Path, inode: str) -> str:
    parents = {pid: parent_of(pid) for pid in pids()}
    pods = {pid: pod_of(spec) for spec, pid in running_shims(folder, RUN, SESSION).items()}
    for pid in parents:
        pod = _pod_above(pid, parents, pods)
        if pod and _has_open(pid, f"socket:[{inode}]"):
            return pod
    return ""


def _pod_above(pid: int, parents: dict[int, int], pods: dict[int, str]) -> str:
    while pid and pid not in pods:
        pid = parents.get(pid, 0)
    return pods.get(pid, "")


def _has_open(pid: int, file: str) -> bool:
    try:
        numbers = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # the process has ended
        return False
    return any(_target(number) == file for number in numbers)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # closed meanwhile
        return ""
