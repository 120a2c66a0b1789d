"""A stand-in for di-server and everything behind it: it starts the programs of a job as processes of this machine.

It knows one job. A pod that has died is replaced under a new name as soon as somebody asks, as the operator does it.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from testbed.operator import REPOSITORY
from testbed.plane import free_port

NAMESPACE = "default"
PORT_NAMES = {"ddp-learner": "LEARNER_PORT"}
DEADLINE = 60.0  # seconds for the end of a process that ends by itself
NAMES = REPOSITORY / "src" / "trainmaster" / "local" / "node" / "fallback"  # Python looks up names in a file


def commands_in(file: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Command and environment of every role in a manifest."""
    found = {}
    manifest = yaml.safe_load((REPOSITORY / file).read_text())
    for role, given in manifest["spec"].items():
        if isinstance(given, dict) and "template" in given:
            (container,) = given["template"]["spec"]["containers"]
            env = {each["name"]: each["value"] for each in container.get("env", ())}
            found[role] = (container["command"], env)
    return found


class Pod:
    """A process, its address, and its lines."""

    def __init__(self, role: str, name: str, port: int, process: subprocess.Popen[str]) -> None:
        self.role = role
        self.name = name
        self.url = f"{name}.{NAMESPACE}:{port}"
        self.process = process
        self.lines: list[str] = []

    def until(self, pattern: str) -> re.Match[str]:
        """The next line in which this is found; the test's time limit is the limit."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.search(pattern, self.lines[-1]):
                return found
        raise AssertionError(f"{self.name} never said {pattern!r}:\n" + "\n".join(self.lines))

    def ended(self) -> int:
        output, _ = self.process.communicate(timeout=DEADLINE)
        self.lines += output.splitlines()
        return self.process.returncode


class StandIn:
    def __init__(self, job: str, roles: Mapping[str, tuple[list[str], dict[str, str]]], folder: Path) -> None:
        self.pods: dict[str, Pod] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self._job = job
        self._roles = dict(roles)
        self._hosts = folder / "hosts"
        self._gone: list[Pod] = []
        self._numbers = itertools.count(1)
        self._turn = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @contextmanager
    def serving(self) -> Iterator["StandIn"]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
            for pod in (*self.pods.values(), *self._gone):
                with pod.process as process:
                    process.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def of(self, role: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.role == role]

    def start(self, role: str, env: Mapping[str, str] | None = None, name: str = "", port: int = 0) -> Pod:
        """A pod of this role, with the environment that the operator would give it."""
        name, port = name or f"{self._job}-{role}-{next(self._numbers):05}", port or free_port()
        command, own = self._roles[role]
        with self._hosts.open("a") as hosts:
            hosts.write(f"127.0.0.1 {name}.{NAMESPACE}\n")
        shared = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(NAMES),
            "OMP_NUM_THREADS": "1",
            "TRAINMASTER_HOSTS": str(self._hosts),
            "KUBERNETES_POD_NAME": name,
            "KUBERNETES_POD_NAMESPACE": NAMESPACE,
            "KUBERNETES_SERVER_URL": self.address,
            PORT_NAMES.get(role, f"{role.upper()}_PORT"): str(port),
        }
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**shared, **own, **(env or {})},
            stdout=subprocess.PIPE if role == "coordinator" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if role == "coordinator" else None,
            text=True,
        )
        pod = self.pods[name] = Pod(role, name, port, process)
        return pod

    def coordinator(self, **env: str) -> Pod:
        return self.start("coordinator", env, f"{self._job}-coordinator")

    # --- di-server ---

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], body: Any) -> dict[str, Any]:
        self.requests.append((method, path, body))
        counts = {role: (body.get(f"{role}s") or {}) for role in ("collector", "learner")} if method != "GET" else {}
        with self._turn:
            self._replace_the_dead()
            if path.endswith("/failed"):
                return self._listed([self._again(pod) for pod in [*self.pods.values()] if pod.name in str(body)])
            if method == "POST":
                return self._listed([self.start(r) for r, c in counts.items() for _ in range(c.get("replicas", 0))])
            if method == "DELETE":
                victims = [pod for role, c in counts.items() for pod in self.of(role)[::-1][: c.get("replicas", 0)]]
                return self._listed([self._end(pod) for pod in victims])
            if "aggregator" in query:
                return self._listed(self.of("ddp-learner"))
            return self._listed(pod for pod in self.pods.values() if pod.role != "ddp-learner")

    def _replace_the_dead(self) -> None:
        for pod in [*self.pods.values()]:
            if pod.role != "coordinator" and pod.process.poll() is not None:
                self._again(pod)

    def _again(self, pod: Pod) -> Pod:
        return self.start(self._end(pod).role)

    def _end(self, pod: Pod) -> Pod:
        pod.process.kill()
        self._gone.append(self.pods.pop(pod.name))
        return pod

    def _listed(self, pods: Any) -> dict[str, Any]:
        found = list(pods)
        return {
            "namespace": NAMESPACE,
            "coordinator": f"{self._job}-coordinator",
            "collectors": [pod.url for pod in found if pod.role == "collector"],
            "learners": [pod.url for pod in found if pod.role in ("learner", "aggregator", "ddp-learner")],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer: Callable[..., dict[str, Any]] = self.answer

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                data = answer(self.command, url.path, parse_qs(url.query), body)
                text = json.dumps({"success": True, "code": 0, "message": "", "data": data}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_DELETE = do_GET  # noqa: N815 - so http.server looks for them

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

        return Handler
