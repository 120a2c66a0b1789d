"""Short HTTP between the programs of a job: one request, one answer, of limited size, and nobody waits for ever."""

import http.client
import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, TypeAlias

from examples.rl.say import say

LIMIT = 16 * 1024 * 1024  # bytes of a body
SILENCE = 30.0  # seconds after which a listener closes a connection on which nothing comes


class Call(NamedTuple):
    """A request that came in: its body, and the headers in lower case."""

    body: bytes
    headers: Mapping[str, str]


Handler: TypeAlias = Callable[[Call], bytes]
Routes: TypeAlias = Mapping[tuple[str, str], Handler]


class Refused(Exception):
    """An answer that is none of success."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:500].decode(errors='replace')}")
        self.status = status
        self.body = body


def split(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``, with or without ``http://`` before and a slash behind."""
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{address!r} is no address: it should be like host:8080 or http://host:8080")
    return host, int(port)


def call(
    method: str, address: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None, timeout: float
) -> bytes:
    """The body of a good answer. OSError when nobody answers, Refused when somebody does, but does not want to."""
    host, port = split(address)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request(method, path, body, {"Connection": "close", **(headers or {})})
        answer = connection.getresponse()
        found = answer.read(LIMIT + 1)
    except http.client.HTTPException as error:
        raise ConnectionError(f"{address} does not speak HTTP, or broke off: {error!r}") from error
    finally:
        connection.close()
    if len(found) > LIMIT:
        raise ConnectionError(f"{address} answers with more than {LIMIT} bytes")
    if answer.status >= 400:
        raise Refused(answer.status, found)
    return found


class Listener(ThreadingHTTPServer):
    """Answers by its routes, each request in a thread."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, routes: Routes) -> None:
        self.routes = routes
        super().__init__((own_address(), port), _Connection)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve in the background."""
        threading.Thread(target=self.serve_forever, name="listener", daemon=True).start()


class _Connection(BaseHTTPRequestHandler):
    timeout = SILENCE
    server: Listener

    def _answer(self) -> None:
        handler = self.server.routes.get((self.command, self.path.partition("?")[0]))
        length = self.headers.get("Content-Length") or "0"
        if handler is None:
            self._reply(404, f"{self.command} {self.path[:200]} is not known here".encode())
        elif not length.isdecimal() or int(length) > LIMIT:
            self._reply(413, f"a body has at most {LIMIT} bytes, and says how many".encode())
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                self._reply(200, handler(Call(self.rfile.read(int(length)), headers)))
            except Refused as refused:
                self._reply(refused.status, refused.body)
            except (ValueError, KeyError, TypeError) as error:  # what the body says makes no sense to the handler
                self._reply(400, str(error).encode())

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - so http.server looks for them

    def _reply(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # who asked has gone

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Silent: the log tells the job's story, not each request."""


def own_address() -> str:
    """Only this machine if our own name is of it, as in `trainmaster run`; in a pod of a cluster, all interfaces."""
    name = f"{os.environ.get('KUBERNETES_POD_NAME', '')}.{os.environ.get('KUBERNETES_POD_NAMESPACE', '')}"
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET)
    except (OSError, UnicodeError):
        return ""  # a service may get its name only after its pod has started
    address = str(found[0][4][0])
    return address if ipaddress.ip_address(address).is_loopback else ""


def end_on_sigterm(code: int) -> None:
    """The first process of a container must say so itself."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(code))


def serve(role: str, routes: Mapping[int, Routes]) -> None:
    """The life of a worker: it listens until it is told to end, because only the coordinator knows the job's end."""
    # Blocked in all threads, so that it waits for sigwait: else any of them could take it while this one sleeps on.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    for port, its_routes in routes.items():
        try:
            Listener(port, its_routes).start()
        except OSError as error:
            sys.exit(f"{role} cannot listen on port {port}: {error}")
    say(f"{role} listens on {', '.join(map(str, routes))}")
    signal.sigwait({signal.SIGTERM})
    sys.exit(0)
