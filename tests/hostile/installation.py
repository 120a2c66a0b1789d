"""A cluster with operator, di-server and webhook as deploy/ installs them, and the attackers as users of it.

The three programs have memory limits, as their pods have: a program that needs more is killed and is not restarted.
"""

import asyncio
import threading
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.admin import Admin, path_of
from testbed.answer import Object
from testbed.operator import OperatorProcess, install
from testbed.plane import CONTROLLERS, ControlPlane, User, free_port
from testbed.server import ServerProcess
from tests.hostile.attack import EDIT_SPACE, EDIT_USER, JOBS_SPACE, JOBS_USER, MB, Target
from tests.integration.scene import give_aggregators, give_node
from tests.integration.test_webhook import WEBHOOK, WebhookProcess, by_url, is_asked
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.runtime.elector import lease_name
from trainmaster.settings import OPERATOR

SYSTEM = "trainmaster-system"
LEASES = "kube-system"
"""Where the Leases of all installations are."""
APISERVER = ("--max-requests-inflight=24", "--max-mutating-requests-inflight=12", "--etcd-compaction-interval=30s")
"""Requests that the API server works on at a time: the defaults, 400 and 200, are for a machine with many cores. On two
cores that many would all be slow at once, and no priority would help. Old versions of large objects fill the database
unless they are compacted often."""
CONTROLLER_MANAGER = ("--kube-api-qps=1000", "--kube-api-burst=1000")
"""The Job controller creates the pods of MxJobs. By default it sends 20 requests a second, and tenants use them up."""
LIMITS = {"operator": 256 * MB, "di-server": 200 * MB, "webhook": 128 * MB}

GROUPS = (
    "diengine.opendilab.org",
    "elasticdeeplearning.ai",
    "kubeflow.org",
    "mlkube.io",
    "mxnet.mlkube.io",
    "nervex.sensetime.com",
)
_JOBS_ROLE: Object = {
    "metadata": {"name": "jobs"},
    "rules": [
        {
            "apiGroups": list(GROUPS),
            "resources": ["aitrainingjobs", "dijobs", "mxjobs", "nervexjobs"],
            "verbs": ["get", "list", "create", "update", "patch", "delete", "deletecollection"],
        }
    ],
}


class MemoryLimit:
    """Samples the resident memory of processes and kills the one that is over its limit."""

    INTERVAL = 0.05

    def __init__(self, processes: Mapping[str, OperatorProcess]) -> None:
        self.peak = dict.fromkeys(processes, 0)
        self.over: dict[str, int] = {}
        self._processes = processes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "MemoryLimit":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self.INTERVAL):
            for name, process in self._processes.items():
                used = resident(process.pid)
                self.peak[name] = max(self.peak[name], used)
                if used > LIMITS[name] and name not in self.over:
                    self.over[name] = used
                    process.kill()


def resident(pid: int) -> int:
    """Bytes of resident memory; 0 of a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    line = next((line for line in status.splitlines() if line.startswith("VmRSS")), "VmRSS: 0 kB")
    return int(line.split()[1]) * 1024


@dataclass
class Installation:
    plane: ControlPlane
    operator: OperatorProcess
    server: ServerProcess
    webhook: WebhookProcess
    webhook_port: int
    memory: MemoryLimit

    @property
    def target(self) -> Target:
        return Target(
            url=self.plane.url,
            ca_file=self.plane.ca_file,
            tokens={user: self.plane.token(user) for user in (JOBS_USER, EDIT_USER)},
            metrics_ports=[program.metrics_port for program in self.programs.values()],
            server_port=self.server.metrics_port,
            webhook_port=self.webhook_port,
        )

    @property
    def programs(self) -> Mapping[str, OperatorProcess]:
        return {"operator": self.operator, "di-server": self.server, "webhook": self.webhook}

    async def during(self, *work: Awaitable[Any]) -> None:
        """Does all of this side by side, until it is done or a program has ended."""
        doing = asyncio.gather(*work)
        try:
            while not doing.done():
                await asyncio.wait([doing], timeout=0.5)
                self.assert_running()
            await doing
        finally:
            doing.cancel()

    def assert_running(self) -> None:
        """All programs run, within their limits."""
        assert self.memory.over == {}, f"killed at these sizes: {self.memory.over}"
        ended = [name for name, program in self.programs.items() if not program.is_running()]
        assert not ended, "\n".join(self.programs[name].log[-3000:] for name in ended)

    def assert_unharmed(self) -> None:
        """And they have met no defect, and the operator has led from the start."""
        self.assert_running()
        for name, program in self.programs.items():
            before, _, after = program.log.partition("Traceback")
            assert not after, f"{name}: {before[-500:]}Traceback{after[:4000]}"
        for name in map(lease_name, (each.resource for each in all_resource_kinds(OPERATOR.jobs))):
            lease = self.plane.request("GET", path_of("coordination.k8s.io/v1/leases", OPERATOR.lease_namespace, name))
            assert f"_{self.operator.pid}_" in lease["spec"]["holderIdentity"], lease
            assert lease["spec"].get("leaseTransitions", 0) == 0, lease


@contextmanager
def installation(binaries: Path) -> Iterator[Installation]:
    users = {
        WEBHOOK: User(f"system:serviceaccount:{SYSTEM}:trainmaster-webhook"),
        JOBS_USER: User(JOBS_USER),
        EDIT_USER: User(EDIT_USER),
    }
    with ControlPlane(binaries=binaries, users=users, apiserver_arguments=APISERVER) as plane:
        install(plane)
        give_aggregators(plane)
        give_node(plane)
        plane.start_controller_manager(("job-controller", *CONTROLLERS), arguments=CONTROLLER_MANAGER)
        _admit_tenants(plane)
        port = free_port()
        plane.apply(by_url(port))
        with (
            OperatorProcess(plane, election=OPERATOR.lease_namespace, verbosity=0) as operator,
            ServerProcess(plane) as server,
            WebhookProcess(plane, port) as webhook,
            MemoryLimit({"operator": operator, "di-server": server, "webhook": webhook}) as memory,
        ):
            asyncio.run(_webhook_is_asked(plane))
            yield Installation(plane, operator, server, webhook, port, memory)


async def _webhook_is_asked(plane: ControlPlane) -> None:
    async with Admin.of(plane) as admin:
        await is_asked(admin)


def _admit_tenants(plane: ControlPlane) -> None:
    for user, space, role in ((JOBS_USER, JOBS_SPACE, "jobs"), (EDIT_USER, EDIT_SPACE, "system:aggregate-to-edit")):
        plane.request("POST", path_of("namespaces"), {"metadata": {"name": space}})
        kind = "Role" if user == JOBS_USER else "ClusterRole"
        if kind == "Role":
            plane.request("POST", path_of("rbac.authorization.k8s.io/v1/roles", space), _JOBS_ROLE)
        binding = {
            "metadata": {"name": user},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": kind, "name": role, "apiGroup": "rbac.authorization.k8s.io"},
        }
        plane.request("POST", path_of("rbac.authorization.k8s.io/v1/rolebindings", space), binding)
