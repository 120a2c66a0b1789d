"""The bed of a run: one control plane, and what the phases start and stop on it."""

import itertools
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import msgspec

from bench import machine
from bench.load import Loader, Request
from bench.observer import Observer
from bench.progress import Progress
from bench.watch import Scope
from bench.work import BATCH_JOBS, BIG, SORTS, TRAINING, Sort
from testbed.admin import MERGE, path_of
from testbed.operator import OperatorProcess, install
from testbed.plane import APISERVER, ETCD, ControlPlane
from testbed.process import Process, Watchdog

# Without its own limits the API server is as fast as the machine; deletion in parallel shortens the tidying up.
_APISERVER_ARGUMENTS = (
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=0",
    "--max-mutating-requests-inflight=0",
    "--delete-collection-workers=8",
)
_REPOSITORY = Path(__file__).resolve().parent.parent


class Bed:
    """Use it as a context: everything that it started has ended when the context is left."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._numbers = itertools.count(1)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.progress("starting etcd and kube-apiserver")
            self.plane = stack.enter_context(ControlPlane(apiserver_arguments=_APISERVER_ARGUMENTS))
            install(self.plane)
            self._folder = Path(tempfile.mkdtemp(prefix="trainmaster-bench-"))
            self._watchdog = Watchdog(self._folder)
            stack.callback(self._watchdog.close, keep=False)
            self.admin = stack.enter_context(self._loader("admin"))
            # The ceiling is measured as the operator: the API server checks the same role for both.
            self.raw = stack.enter_context(self._loader("operator"))
            # A loader is of one thread at a time: this is for a second one.
            self.beside = stack.enter_context(self._loader("admin"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def pids(self) -> dict[str, int]:
        """The processes that every phase needs."""
        return {"apiserver": self.plane.pid(APISERVER), "etcd": self.plane.pid(ETCD), "bench": os.getpid()}

    def settle(self) -> None:
        """Wait until the plane has nothing to do."""
        machine.wait_idle([self.plane.pid(APISERVER), self.plane.pid(ETCD)])

    @contextmanager
    def namespace(self, prefix: str, *, is_last: bool = False) -> Iterator[str]:
        """A new namespace, which is emptied at the end: every phase starts on an empty API server."""
        name = f"bench-{prefix}-{next(self._numbers):03}"
        self.admin.ask(Request("POST", path_of("namespaces"), {"metadata": {"name": name}}))
        yield name
        if not is_last:
            self._empty(name)

    @contextmanager
    def operator(self) -> Iterator[OperatorProcess]:
        """Our operator as a user runs it: for all namespaces, with the role of deploy/rbac.yaml; it is ready."""
        with OperatorProcess(self.plane, verbosity=0) as operator:
            machine.wait_idle([operator.pid])
            yield operator

    @contextmanager
    def observer(
        self, namespace: str, expected: dict[str, int], operator: OperatorProcess | None = None
    ) -> Iterator[Observer]:
        """An observer whose watches are open, of what is created."""
        with self._observer(self._scope(namespace, expected), operator) as observer:
            yield observer

    @contextmanager
    def witness(self, namespace: str, jobs: int, sort: Sort, operator: OperatorProcess) -> Iterator[Observer]:
        """An observer that follows so many jobs and their pods to the end."""
        scope = self._scope(namespace, {"pods": sort.pods(jobs)}, sort, jobs)
        with self._observer(scope, operator) as observer:
            yield observer

    @contextmanager
    def turnover(self, namespace: str, pods: int, operator: OperatorProcess | None = None) -> Iterator[Observer]:
        """An observer of one big job, and of small ones beside it."""
        scope = self._scope(namespace, {"pods": pods}, TRAINING)
        with self._observer(msgspec.structs.replace(scope, big=BIG), operator) as observer:
            yield observer

    def _scope(self, namespace: str, expected: dict[str, int], sort: Sort | None = None, jobs: int = 0) -> Scope:
        return Scope(
            url=self.plane.url,
            token=self.plane.admin_token,
            ca_file=str(self.plane.ca_file),
            namespace=namespace,
            expected=expected,
            job_resource=sort.resource if sort else "",
            jobs=jobs,
        )

    @contextmanager
    def _observer(self, scope: Scope, operator: OperatorProcess | None) -> Iterator[Observer]:
        observer = Observer(scope, self._start_watch(scope), self.progress, operator)
        try:
            observer.wait("ready")
            self.settle()
            yield observer
        finally:
            observer.close()

    def count(self, namespace: str, resources: Iterable[str]) -> int:
        """How many objects there are, without reading them."""
        total = 0
        for resource in resources:
            found = self.admin.ask(Request("GET", path_of(resource, namespace) + "?limit=1"))
            total += len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))
        return total

    def _loader(self, user: str) -> Loader:
        return Loader(self.plane.url, self.plane.token(user), self.plane.ca_file)

    def _start_watch(self, scope: Scope) -> Process:
        file = self._folder / f"observer-{next(self._numbers):03}.json"
        file.touch(mode=0o600)
        file.write_bytes(msgspec.json.encode(scope))
        return Process(
            [sys.executable, "-m", "bench.watch", file],
            log=file.with_suffix(".log"),
            environ={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(_REPOSITORY)},
            watchdog=self._watchdog,
        )

    def _empty(self, namespace: str) -> None:
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        self.progress(f"emptying {namespace}")
        for resource in (*SORTS, BATCH_JOBS, "pods", "services", "events"):
            if resource == "pods":
                self._free_pods(namespace)
            self.admin.ask(Request("DELETE", path_of(resource, namespace), options))
        self.settle()

    def _free_pods(self, namespace: str) -> None:
        """The Job controller holds its pods by a finalizer, and is gone when they are to be deleted."""
        pods = self.admin.ask(Request("GET", path_of("pods", namespace)))["items"]
        held = [pod["metadata"]["name"] for pod in pods if "finalizers" in pod["metadata"]]
        change = {"metadata": {"finalizers": None}}
        self.admin.send(Request("PATCH", path_of("pods", namespace, name), change, MERGE) for name in held)
