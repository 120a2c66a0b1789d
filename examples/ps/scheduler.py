"""The scheduler: here all others meet. It gives them their numbers, says where the servers are, and knows the end.

A worker that leaves before it is done may come back, or another one in its place: it gets the free number. A server
that leaves takes its share of the parameters along, so then the job must begin anew. When every worker is done the
servers are told to stop, and the scheduler ends well.
"""

import socketserver
import sys
import threading
from io import BufferedIOBase
from typing import Any

from examples.ps.setting import Setting
from examples.ps.wire import receive, send
from examples.rl.say import say

FIRST_WORD = 10.0  # seconds in which whoever connects must say who it is
FAREWELL = 10.0  # seconds for the servers to go when all is over


class Refused(ValueError):
    """Somebody for whom there is no place."""


class Meeting:
    """Who is here. Everybody has a thread, and waits in `join` until the servers are complete.

    Who has which place is remembered by where it comes from: a worker may come back before its old self is missed.
    """

    def __init__(self, servers: int, workers: int) -> None:
        self._size = {"server": servers, "worker": workers}
        self._present: dict[str, dict[int, str]] = {"server": {}, "worker": {}}
        self._addresses: dict[int, str] = {}
        self._done: set[int] = set()
        self._lost = ""
        self._changed = threading.Condition()

    def join(self, role: str, origin: str, *, address: str = "", wanted: int = -1) -> tuple[int, list[str]]:
        """The number of the newcomer, and where the servers listen, once all are here."""
        with self._changed:
            rank = self._rank(role, wanted)
            self._present[role][rank] = origin
            if role == "server":
                self._addresses[rank] = address
            say(f"{role} {rank} has come from {origin}")
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._addresses) == self._size["server"])
            return rank, [self._addresses[each] for each in range(self._size["server"])]

    def _rank(self, role: str, wanted: int) -> int:
        if role not in self._size:
            raise Refused(f"nobody knows the role {role!r}")
        if role == "worker" and 0 <= wanted < self._size[role]:
            return wanted
        taken = self._addresses.keys() if role == "server" else self._present[role].keys() | self._done
        free = [each for each in range(self._size[role]) if each not in taken]
        if not free:
            raise Refused(f"all {self._size[role]} places for a {role} are taken")
        return free[0]

    def finish(self, worker: int) -> None:
        with self._changed:
            self._done.add(worker)
            say(f"worker {worker} is done")
            self._changed.notify_all()

    def leave(self, role: str, rank: int, origin: str) -> None:
        with self._changed:
            if self._present[role].get(rank) != origin:
                return  # another one has its place
            del self._present[role][rank]
            if role == "server" and not self._is_over():
                self._lost = f"server {rank} is lost, and its share of the parameters with it"
            elif role == "worker" and rank not in self._done:
                say(f"worker {rank} has left")
            self._changed.notify_all()

    def _is_over(self) -> bool:
        return len(self._done) == self._size["worker"]

    def until_over(self) -> str:
        """Wait until all workers are done; answers what went wrong."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over() or self._lost)
            return "" if self._is_over() else self._lost

    def until_alone(self) -> None:
        """Wait until everybody has left; not for ever, because they notice when we go."""
        with self._changed:
            self._changed.wait_for(lambda: not any(self._present.values()), FAREWELL)


class Visit(socketserver.StreamRequestHandler):
    """One server or worker, as long as it stays."""

    disable_nagle_algorithm = True
    server: "Listener"

    def handle(self) -> None:
        origin = f"{self.client_address[0]}:{self.client_address[1]}"
        try:
            self.connection.settimeout(FIRST_WORD)
            self._meet(origin, receive(self.rfile).words)
        except (OSError, ValueError, KeyError, TypeError) as error:
            say(f"{origin} was sent away: {error}")

    def _meet(self, origin: str, hello: dict[str, Any]) -> None:
        role, meeting = str(hello["role"]), self.server.meeting
        rank, servers = meeting.join(
            role, origin, address=str(hello.get("address", "")), wanted=int(hello.get("worker", -1))
        )
        try:
            self.connection.settimeout(None)  # from now on it is silent until the end
            send(self.wfile, {"rank": rank, "servers": servers})
            if role == "server":
                self.server.waiting.append(self.wfile)
            receive(self.rfile)
            if role == "worker":
                meeting.finish(rank)
                send(self.wfile, {"bye": rank})
        except OSError:
            pass  # it went
        finally:
            meeting.leave(role, rank, origin)


class Listener(socketserver.ThreadingTCPServer):
    """``waiting`` are the servers that want to know when all is over."""

    allow_reuse_address = True  # after a restart, at once
    daemon_threads = True

    def __init__(self, address: tuple[str, int], meeting: Meeting) -> None:
        self.meeting = meeting
        self.waiting: list[BufferedIOBase] = []
        super().__init__(address, Visit)


def run(setting: Setting) -> int:
    meeting = Meeting(setting.servers, setting.workers)
    with Listener(setting.root_address(), meeting) as listener:
        host, port = listener.server_address[:2]
        say(f"waits on {host!s}:{port} for {setting.servers} servers and {setting.workers} workers")
        threading.Thread(target=listener.serve_forever, args=(0.1,), daemon=True).start()
        if lost := meeting.until_over():
            sys.exit(f"{lost}: the job must begin anew")
        for stream in listener.waiting:
            send(stream, {"stop": True})
        meeting.until_alone()
        listener.shutdown()
    say("all workers are done")
    return 0
