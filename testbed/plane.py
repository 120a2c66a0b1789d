"""A real control plane on loopback: etcd and kube-apiserver, and on demand the programs around them.

    with ControlPlane() as plane:
        plane.start_scheduler()
        plane.kubectl("get", "nodes")

Synchronous, so that a session fixture or a benchmark can hold it without an event loop; from a coroutine
call the slow methods through `asyncio.to_thread`. `process` sees to it that nothing is left running; `admin`
is the client.
"""

import base64
import http.client
import json
import os
import random
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

import yaml

from testbed import build
from testbed.answer import WARM_UP_PAUSE, WARM_UP_TRIES, Object, Refused, answer_of
from testbed.certificate import Authority, signing_key
from testbed.kubelet import FOLLOWING, KWOK_NODE
from testbed.process import Died, PortTaken, Process, StartFailed, Watchdog

START_ATTEMPTS = 4
PORT_PAUSE = 0.5
# A machine that is building something else is slow; a plane alone is ready in three to four seconds.
START_TIMEOUT = 90.0
CONTROLLERS = ("garbage-collector-controller", "namespace-controller")
ACCOUNT_CONTROLLERS = ("serviceaccount-controller", "root-ca-certificate-publisher-controller")
STAGES = Path(__file__).with_name("stages")

ETCD_QUOTA = 8 << 30
"""Bytes of the database, as large clusters have it: the default, 2 GiB, is full after minutes of large objects."""

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KUBECTL = "kubectl"
KWOK = "kwok"
KUBELET = "kubelet"


class User(NamedTuple):
    """Somebody with a token; every user is in system:authenticated besides these groups."""

    name: str
    groups: tuple[str, ...] = ()


USERS: Mapping[str, User] = {
    "admin": User("admin", ("system:masters",)),
    "operator": User("system:serviceaccount:trainmaster-system:trainmaster-operator"),
    "server": User("system:serviceaccount:trainmaster-system:trainmaster-server"),
}


class NotBuilt(Exception):
    """The binaries of the test bed are not there."""


class KubectlFailed(Exception):
    """kubectl ended with an error; the message is what it said."""


class ControlPlane:
    """One control plane: start it, use it, stop it. `users` come in addition to admin and operator.

    With `has_accounts` a pod gets the token of its service account, as on every cluster: then both must be made first,
    and somebody has to start the controllers that make them (ACCOUNT_CONTROLLERS).
    """

    has_rbac = True

    def __init__(
        self,
        *,
        users: Mapping[str, User] | None = None,
        apiserver_arguments: Sequence[str] = (),
        has_accounts: bool = False,
        binaries: Path | None = None,
    ) -> None:
        self._binaries = binaries or build.folder()
        self.users = {**USERS, **(users or {})}
        self._tokens = {user: secrets.token_hex(16) for user in self.users}
        self._apiserver_arguments = tuple(apiserver_arguments)
        self._disabled_plugins = (
            ["TaintNodesByCondition"] if has_accounts else ["ServiceAccount", "TaintNodesByCondition"]
        )
        self._processes: dict[str, Process] = {}

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start etcd and the API server; they are ready when this returns."""
        for name in build.NAMES:
            self.binary(name)
        self.folder = Path(tempfile.mkdtemp(prefix="trainmaster-plane-"))
        self._watchdog = Watchdog(self.folder)
        try:
            self._write_credentials()
            self._retry(self._start_core)
        except BaseException as error:
            self.stop(keep=isinstance(error, StartFailed))
            raise
        return self

    def stop(self, *, keep: bool = False) -> None:
        """End every process, the last started first, and remove the folder with the logs unless kept.

        Raises Died, and keeps the logs, when a program had ended by itself.
        """
        died = [each.obituary("by itself") for each in self._processes.values() if not each.is_running()]
        for name in reversed(list(self._processes)):
            self.kill(name)
        self._watchdog.close(keep=keep or bool(died))
        if died:
            raise Died("\n".join(died))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self, name: str) -> None:
        """End one program by SIGKILL, as a crash does; `kubelet` ends with KWOK."""
        self._processes.pop(name).kill()
        if name == KWOK and KUBELET in self._processes:
            self.kill(KUBELET)

    def pause(self, name: str) -> None:
        """Stop one program in its tracks: it keeps its connections and answers nothing."""
        self._processes[name].pause()

    def resume(self, name: str) -> None:
        """Let a paused program go on."""
        self._processes[name].send(signal.SIGCONT)

    def is_running(self, name: str) -> bool:
        """Was started and has not ended."""
        return name in self._processes and self._processes[name].is_running()

    def pid(self, name: str) -> int:
        """The pid of a running program."""
        return self._processes[name].pid

    def restart_apiserver(self) -> None:
        """Crash the API server and start it again on the same port; the data stays in etcd."""
        if self.is_running(APISERVER):
            self.kill(APISERVER)
        self.start_apiserver()

    def start_apiserver(self) -> None:
        """Start the API server again, on its port, after `kill`."""
        # Here the port cannot change: a program that took it meanwhile has a few seconds to end.
        self._retry(self._start_apiserver)

    # -- the programs around it ----------------------------------------------------------------------------

    def start_controller_manager(
        self, controllers: Sequence[str] = CONTROLLERS, *, arguments: Sequence[str] = ()
    ) -> None:
        """Start these controllers. None runs by default, so what a test deletes or disowns stays as it is."""
        self._retry(
            lambda: self._start_component(
                CONTROLLER_MANAGER,
                "/healthz",
                f"--service-account-private-key-file={self._signing_key}",
                f"--root-ca-file={self.ca_file}",
                "--use-service-account-credentials=false",
                f"--controllers={','.join(controllers)}",
                *arguments,
            )
        )

    def start_scheduler(self, *, arguments: Sequence[str] = ()) -> None:
        """Start the scheduler: pods get nodes (see `add_nodes`)."""
        self._retry(lambda: self._start_component(SCHEDULER, "/readyz", *arguments))

    def start_kwok(self, *, completes_jobs: bool = True, arguments: Sequence[str] = ()) -> None:
        """Start KWOK: pods on nodes of `add_nodes` become Running, and those of a batch Job complete, unless they are
        to run until somebody says how they ended. And beside it `kubelet`, which ends pods that are deleted."""
        stages = ("ready", "complete") if completes_jobs else ("ready",)

        def start() -> None:
            port = free_port()
            process = self._spawn(
                KWOK,
                f"--kubeconfig={self.kubeconfig()}",
                *(f"--config={STAGES / stage}.yaml" for stage in stages),
                "--manage-all-nodes=false",
                f"--manage-nodes-with-annotation-selector={_selector(KWOK_NODE)}",
                f"--server-address=127.0.0.1:{port}",
                f"--tls-cert-file={self._server.certificate}",
                f"--tls-private-key-file={self._server.key}",
                *arguments,
            )
            process.wait_ready(lambda: _is_healthy(port, self._tls, "/healthz"), within=START_TIMEOUT)
            kubelet = self._spawn(KUBELET, str(self.kubeconfig()))
            kubelet.wait_ready(lambda: FOLLOWING in kubelet.log.read_text(), within=START_TIMEOUT)

        self._retry(start)

    def add_nodes(
        self,
        count: int,
        *,
        cpu: str = "1000",
        memory: str = "1000Gi",
        pods: int = 1000,
        prefix: str = "node",
        labels: Mapping[str, str] | None = None,
        extended: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Write fake, ready nodes and answer their names; `extended` adds resources like nvidia.com/gpu."""
        room = {"cpu": cpu, "memory": memory, "pods": str(pods), **(extended or {})}
        names = [f"{prefix}-{index}" for index in range(count)]
        with closing(self._connect()) as connection:
            for name in names:
                self._send(connection, "POST", "/api/v1/nodes", body=node_body(name, room, labels or {}))
        return names

    # -- use -----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the API server answers."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        """The CA of the API server's certificate, PEM."""
        return self.authority.ca_file

    @property
    def admin_token(self) -> str:
        """The bearer token of admin, who is in system:masters."""
        return self.token("admin")

    def token(self, user: str) -> str:
        """The bearer token of a user."""
        return self._tokens[user]

    def kubeconfig(self, user: str = "admin") -> Path:
        """A self-contained kubeconfig of a user."""
        return self._kubeconfigs[user]

    def binary(self, name: str) -> Path:
        """A program of the test bed."""
        file = self._binaries / name
        if not file.is_file():
            raise NotBuilt(f"the test bed has no {name}: run make testbed")
        return file

    def kubectl(
        self,
        *arguments: str | Path,
        user: str = "admin",
        input: str = "",  # noqa: A002 – subprocess.run's word
        timeout: float = 60,
    ) -> str:
        """Run kubectl as a user and answer what it printed."""
        command = [self.binary(KUBECTL), f"--kubeconfig={self.kubeconfig(user)}", *arguments]
        done = subprocess.run(
            command,
            input=input,
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlFailed(done.stderr.strip() or f"kubectl ended with {done.returncode}")
        return done.stdout

    def apply(self, manifest: str | Path) -> None:
        """Apply a manifest (its text or its file) as admin, and wait until the CRDs in it are served."""
        text = manifest.read_text() if isinstance(manifest, Path) else manifest
        self.kubectl("apply", "--server-side", "--filename=-", input=text)
        for body in yaml.safe_load_all(text):
            if body and body["kind"] == "CustomResourceDefinition":
                self.wait_served(body)

    def wait_served(self, crd: Object) -> None:
        """Wait until the objects of a definition can be read from the API server's cache.

        Established comes before: for a moment a request gets 404 or 429. With a selector it is answered from the cache
        alone.
        """
        name, spec = crd["metadata"]["name"], crd["spec"]
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{name}")
        for version in spec["versions"]:
            path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}?labelSelector=none"
            deadline = time.monotonic() + START_TIMEOUT
            while version["served"] and not self._answers(path):
                if time.monotonic() > deadline:
                    raise StartFailed(f"{name} was established, but {path} does not answer")
                time.sleep(WARM_UP_PAUSE)

    def request(self, method: str, path: str, body: Object | None = None, *, user: str = "admin") -> Object:
        """One request with a user's token; raises answer.Refused."""
        with closing(self._connect()) as connection:
            for _ in range(WARM_UP_TRIES):
                try:
                    return self._send(connection, method, path, body=body, user=user)
                except Refused as refused:
                    last = refused
                    if not refused.is_warming_up:
                        raise
                time.sleep(WARM_UP_PAUSE)
            raise last

    # -- inside --------------------------------------------------------------------------------------------

    def _write_credentials(self) -> None:
        self.authority = Authority(self.folder)
        self._front_proxy = Authority(self._subfolder("front-proxy"))
        self._server = self.authority.server()
        self._signing_key = signing_key(self.folder / "service-account.key")
        self._tls = ssl.create_default_context(cafile=self.ca_file)
        self._token_file = self.folder / "tokens.csv"
        rows = [
            f'{self._tokens[key]},{user.name},{key},"{",".join(user.groups)}"\n' for key, user in self.users.items()
        ]
        self._token_file.touch(mode=0o600)
        self._token_file.write_text("".join(rows))

    def _subfolder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    def _write_kubeconfigs(self) -> None:
        self._kubeconfigs = {}
        for user in self.users:
            file = self.folder / f"{user}.kubeconfig"
            file.touch(mode=0o600)
            file.write_text(yaml.safe_dump(self._kubeconfig_body(user)))
            self._kubeconfigs[user] = file

    def _kubeconfig_body(self, user: str) -> Object:
        ca = base64.b64encode(self.authority.ca_pem).decode()
        cluster = {"server": self.url, "certificate-authority-data": ca}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        }

    def _retry(self, start: Callable[[], None]) -> None:
        """A port can be lost between its choice and its use: then start again, with other ports."""
        before = set(self._processes)
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                start()
            except StartFailed as error:
                for name in reversed([name for name in self._processes if name not in before]):
                    self.kill(name)
                if attempt == START_ATTEMPTS or not isinstance(error, PortTaken):
                    raise
                time.sleep(PORT_PAUSE)
            else:
                return

    def _start_core(self) -> None:
        client, peer, self._port = free_port(), free_port(), free_port()
        self._etcd_url = f"http://127.0.0.1:{client}"
        peer_url = f"http://127.0.0.1:{peer}"
        # Data of a lost attempt names the lost ports: every attempt has its own folder.
        name = f"etcd-{client}-{secrets.token_hex(4)}"
        etcd = self._spawn(
            ETCD,
            f"--name={name}",
            f"--data-dir={self.folder / name}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster={name}={peer_url}",
            "--unsafe-no-fsync",
            f"--quota-backend-bytes={ETCD_QUOTA}",
            "--log-level=warn",
        )
        self._write_kubeconfigs()
        # Everybody else proves by our certificate to be the one we started; etcd, by its name.
        etcd.wait_ready(lambda: _is_etcd(client, name), within=START_TIMEOUT)
        self._start_apiserver()

    def _start_apiserver(self) -> None:
        process = self._spawn(
            APISERVER,
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            # Said, because it is otherwise looked up, and a machine without a network has none.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._server.certificate}",
            f"--tls-private-key-file={self._server.key}",
            f"--client-ca-file={self.ca_file}",
            # Unused, but the scheduler looks for it again and again, and logs a page of errors each time.
            f"--requestheader-client-ca-file={self._front_proxy.ca_file}",
            f"--token-auth-file={self._token_file}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={self._signing_key}",
            f"--service-account-signing-key-file={self._signing_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/12",
            f"--disable-admission-plugins={','.join(self._disabled_plugins)}",
            "--allow-privileged=true",
            *self._apiserver_arguments,
        )
        process.wait_ready(self._is_ready, within=START_TIMEOUT)

    def _start_component(self, name: str, health: str, *arguments: str) -> None:
        port = free_port()
        kubeconfig = self.kubeconfig()
        process = self._spawn(
            name,
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self._server.certificate}",
            f"--tls-private-key-file={self._server.key}",
            "--leader-elect=false",
            *arguments,
        )
        process.wait_ready(lambda: _is_healthy(port, self._tls, health), within=START_TIMEOUT)

    def _answers(self, path: str) -> bool:
        return _is_healthy(self._port, self._tls, path, {"Authorization": f"Bearer {self.admin_token}"})

    def _spawn(self, name: str, *arguments: str) -> Process:
        if self.is_running(name):
            raise StartFailed(f"{name} is running already; kill it first")
        if name in self._processes:
            self.kill(name)  # it has ended; this makes the watchdog forget its pid
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        command = self._command(name, arguments)
        process = Process(command, log=log, environ=self._environ(), watchdog=self._watchdog)
        self._processes[name] = process
        return process

    def _command(self, name: str, arguments: Sequence[str]) -> list[str | Path]:
        if name == KUBELET:
            return [sys.executable, "-m", "testbed.kubelet", *arguments]
        return [self.binary(name), *arguments]

    def _environ(self) -> dict[str, str]:
        # HOME is ours: kubectl caches discovery there by host and port, and KWOK reads a config from it.
        # PYTHONPATH is for programs that are modules of this package.
        path, package = os.environ.get("PATH", os.defpath), Path(__file__).parent
        return {"HOME": str(self.folder), "PATH": path, "PYTHONPATH": str(package.parent)}

    def _is_ready(self) -> bool:
        # /readyz does not wait for the namespace that everybody expects.
        return self._answers("/readyz") and self._answers("/api/v1/namespaces/default")

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._port, timeout=30, context=self._tls)

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        *,
        body: Object | None,
        user: str = "admin",
    ) -> Object:
        headers = {"Authorization": f"Bearer {self._tokens[user]}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        with connection.getresponse() as response:
            return answer_of(response.status, response.read())


def node_body(name: str, room: Mapping[str, str], labels: Mapping[str, str]) -> Object:
    """A node that says it is ready and that KWOK takes care of, if it runs."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": KWOK_NODE,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
        },
        "status": {
            "capacity": dict(room),
            "allocatable": dict(room),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def free_port() -> int:
    """A loopback port that is not in use now.

    Below the range that systems give to outgoing connections: else, while the API server is down for a
    restart, a client's own connection could be given its port. Below the range that operators give to pods on the
    network of their node, too: an operator does not know which ports of this machine are in use.
    """
    while True:
        port = random.randrange(11_000, 20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _is_healthy(port: int, tls: ssl.SSLContext, path: str, headers: Mapping[str, str] | None = None) -> bool:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=2, context=tls)
    try:
        return _body_of(connection, "GET", path, headers or {}) is not None
    except (OSError, http.client.HTTPException):
        return False


def _is_etcd(port: int, name: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        healthy = _body_of(connection, "GET", "/health", {}) is not None
        members = _body_of(connection, "POST", "/v3/cluster/member/list", {})
    except (OSError, http.client.HTTPException):
        return False
    return healthy and members is not None and f'"name":"{name}"'.encode() in members


def _body_of(
    connection: http.client.HTTPConnection, method: str, path: str, headers: Mapping[str, str]
) -> bytes | None:
    """What is answered with 200, else None."""
    with closing(connection):
        connection.request(method, path, "{}" if method == "POST" else None, dict(headers))
        with connection.getresponse() as response:
            body = response.read()
            return body if response.status == 200 else None


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())
