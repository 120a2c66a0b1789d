"""The process node: a kubelet whose containers are process groups of this machine.

It uses only the Kubernetes API, so it works with any API server. State is on disk under ``folder`` and in shims that
outlive the node: a restarted node adopts the running containers.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import CONFIG_MAP, POD, SERVICE, Key
from trainmaster.core.view import SERVICE_CODEC, WHOLE_CODEC, JobView, ServiceView
from trainmaster.local.gpu import find_gpus
from trainmaster.local.lock import Taken, locked
from trainmaster.local.node.account import Access
from trainmaster.local.node.address import Addresses, why_single
from trainmaster.local.node.attempt import end_orphans
from trainmaster.local.node.backoff import RestartBackoff
from trainmaster.local.node.container import Container
from trainmaster.local.node.event import PodEvents
from trainmaster.local.node.gpu import Gpus
from trainmaster.local.node.host import Host
from trainmaster.local.node.isolation import Isolation, probe_isolation
from trainmaster.local.node.kubelet import KubeletOptions, serve_kubelet
from trainmaster.local.node.name import HostsFiles, NamedPod, NamedService
from trainmaster.local.node.pod import Pod
from trainmaster.local.node.process import running_shims
from trainmaster.local.node.registration import Registration, capacity
from trainmaster.local.node.security import Policy, own_identity
from trainmaster.local.node.stats import Running, summary
from trainmaster.local.node.worker import PodWorker, end_leftover, kept_pods
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store
from trainmaster.settings import NODE

HOSTS = Path("/etc/hosts")
NAME_PAUSE = 0.05
"""Seconds in which name changes are collected, so that a burst of pods rewrites the hosts files only a few times."""

log = structlog.get_logger(__name__)


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    folder: Path
    """The node's state: pods/<uid>/…, hosts/<namespace>."""
    workdir: Path
    """The working directory of containers without workingDir."""
    certificate: Path
    key: Path
    """The port of the log endpoint on loopback."""
    token: str = ""
    """The bearer token that the log endpoint accepts; empty for none."""
    client_ca: Path | None = None
    """The CA of accepted client certificates: a real API server has one."""
    client_name: str = NODE.client_name
    """The common name of accepted client certificates: the CA may have signed those of many users."""
    restart_backoff: float = 10.0
    """Seconds before the second restart of a container, doubling from then on."""
    keeps_logs: bool = False
    """True: logs are kept after their pod was deleted, and a reader deletes each full file when it has read it:
    programs that write faster than it reads have to wait."""
    keeps_deleted_logs: bool = False
    """True: the logs of the last deleted pods are kept in a folder of their own."""
    is_last: bool = False
    """True: containers end when this process ends, since no later node will adopt them."""
    is_strict: bool = False
    """True: pods whose security context cannot be had are refused, as on a node of a cluster with many users."""
    is_tainted: bool = False
    """True: only pods that tolerate the taint of process nodes run here."""
    gpus: tuple[str, ...] | None = None
    """The GPUs of this machine, as ``find_gpus`` returns them; None: they are searched for."""
    services: Mapping[Key, str] = {}
    """Loopback addresses of services that the cluster itself has, which pods find by their names."""


async def run_node(
    cluster: Cluster,
    options: NodeOptions,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    *,
    access: Access | None = None,
) -> None:
    """Runs until ``stop``. Containers go on without the node: the next one adopts them.

    With ``access`` containers can use the API server, as their service account.
    """
    folder = options.folder.resolve()
    with _locked(folder):
        async with asyncio.TaskGroup() as group:  # both start a process
            probing, searching = group.create_task(probe_isolation()), group.create_task(_gpus(options))
        isolation, gpus = probing.result(), Gpus(searching.result())
        if not isolation.mode:
            log.warning("containers share the machine's file system", because=isolation.why)
        await Agent(cluster, options, folder, isolation, gpus, access).run(stop, ready)


async def _gpus(options: NodeOptions) -> tuple[str, ...]:
    return await asyncio.to_thread(find_gpus, os.environ) if options.gpus is None else options.gpus


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Prevents two nodes on one folder: they would start every container twice."""
    with ExitStack() as held:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "pods").mkdir(mode=0o700, exist_ok=True)
            held.enter_context(locked(folder / "lock"))
        except OSError as error:
            raise BadConfig(f"the node cannot keep its state in {folder}: {error.strerror}") from error
        except Taken as taken:
            raise BadConfig(f"another node is running on {folder}; stop it, or choose another folder") from taken
        yield


class Agent:
    def __init__(
        self,
        cluster: Cluster,
        options: NodeOptions,
        folder: Path,
        isolation: Isolation,
        gpus: Gpus,
        access: Access | None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._folder = folder
        self._pods = Store[JobView](POD)
        self._services = Store[JobView](SERVICE)
        self._config_maps = Store[ServiceView](CONFIG_MAP)
        """Only changes are of interest, so the views are minimal."""
        self._recorder = Recorder(cluster, lambda: datetime.now(UTC))
        self._names_changed = asyncio.Event()
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_leaving = False
        self._shims: dict[str, int] = {}
        """Shims that an earlier node left running; used only at the start."""
        self._room = capacity(len(gpus.names))
        self._named_services = {key: NamedService(key, address=each) for key, each in options.services.items()}
        self._hosts = HostsFiles(folder / "hosts", self._named_services.values, self._named_pods, _text(HOSTS))
        self._host = Host(
            cluster,
            folder=folder,
            workdir=options.workdir,
            isolation=isolation,
            hosts=self._hosts,
            addresses=Addresses(str(folder), why_single()),
            events=PodEvents(self._recorder),
            allocatable=self._room,
            gpus=gpus,
            backoff=RestartBackoff(options.restart_backoff),
            keeps_logs=options.keeps_logs,
            keeps_deleted_logs=options.keeps_deleted_logs,
            is_last=options.is_last,
            access=access,
            policy=Policy(own_identity(), is_strict=options.is_strict, is_tainted=options.is_tainted),
        )

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None) -> None:
        options = self._options
        kubelet = KubeletOptions(
            certificate=options.certificate,
            key=options.key,
            token=options.token,
            client_ca=options.client_ca,
            client_name=options.client_name,
        )
        async with serve_kubelet(kubelet, self.find, self._summary) as port:
            registration = Registration(self._cluster, options.name, self._room, port, is_tainted=options.is_tainted)
            async with asyncio.TaskGroup() as group:
                working = group.create_task(self._work(registration, ready))
                await stop.wait()
                working.cancel()

    async def _work(self, registration: Registration, ready: asyncio.Event | None) -> None:
        """Runs until it is cancelled."""
        pods = Reflector(self._cluster, self._pods, WHOLE_CODEC, fields=f"spec.nodeName={self._options.name}")
        services = Reflector(self._cluster, self._services, WHOLE_CODEC)
        # The Node authorizer allows no list of them.
        without = "files of volumes are compared with their ConfigMaps once a minute"
        config_maps = Reflector(self._cluster, self._config_maps, SERVICE_CODEC, without=without)
        await registration.register()
        async with asyncio.TaskGroup() as group:
            for reflector in (pods, services, config_maps):
                group.create_task(reflector.run())
            for work in (self._recorder.run(), registration.keep_alive()):
                group.create_task(work)
            await pods.synced.wait()
            await services.synced.wait()
            try:
                await self._begin()
                log.info("node is ready", node=self._options.name, folder=str(self._folder))
                if ready is not None:
                    ready.set()
                await self._keep_names()
            finally:
                await self._detach()

    # --- pods ---

    async def _begin(self) -> None:
        """Adopts the pods on disk, then watches the API."""
        self._shims = await asyncio.to_thread(running_shims, self._folder)
        await asyncio.to_thread(end_orphans, self._folder, self._shims)
        self._services.listen(self._service_changed)
        for key in list(self._services.keys()):
            self._service_changed(None, self._services.get(key))
        pods = kept_pods(self._folder)
        for uid, kept in pods.items():
            if kept is not None:
                self._host.addresses.keep(uid, kept.status.get("podIP", ""))
        for uid, kept in pods.items():
            if kept is None:
                await asyncio.to_thread(end_leftover, self._folder, uid)
                continue
            view = self._pods.get(kept.key)
            if view is None or view.uid != uid:
                self._start(kept).mark_gone()
        for key in list(self._pods.keys()):
            self._pod_changed(None, self._pods.get(key))
        self._shims = {}
        self._hosts.keep(worker.pod.key.namespace for worker in self._workers.values())
        self._rename()
        self._pods.listen(self._pod_changed)
        self._config_maps.listen(self._config_map_changed)

    def _pod_changed(self, before: JobView | None, after: JobView | None) -> None:
        try:
            self._take(before, after)
        except Exception:
            # An error of one pod must not stop the others.
            view = after or before
            log.exception("cannot handle a pod event: a defect in trainmaster", pod=str(view and view.key))

    def _take(self, before: JobView | None, after: JobView | None) -> None:
        if self._is_leaving:
            return  # stopping: the next node adopts the pod
        if before is not None and (after is None or after.uid != before.uid) and before.uid in self._workers:
            self._workers[before.uid].mark_gone()
        if after is not None:
            pod = Pod.of(after.raw)
            if after.uid in self._workers:
                self._see(self._workers[after.uid], pod)
            else:
                self._start(pod)
        if before is None or after is None:
            self._rename()

    def _see(self, worker: PodWorker, pod: Pod) -> None:
        old = NamedPod.of(worker.pod, worker.address)
        worker.see(pod)
        if NamedPod.of(pod, worker.address) != old:
            self._rename()

    def _start(self, pod: Pod) -> PodWorker:
        worker = PodWorker(self._host, pod, self._shims)
        self._workers[pod.uid] = worker
        task = asyncio.get_running_loop().create_task(worker.run(), name=f"pod {pod.key}")
        self._tasks[pod.uid] = task
        task.add_done_callback(lambda done: self._ended(pod, done))
        return worker

    def _ended(self, pod: Pod, task: asyncio.Task[None]) -> None:
        self._workers.pop(pod.uid, None)
        self._tasks.pop(pod.uid, None)
        self._host.addresses.release(pod.uid)
        self._host.gpus.release(pod.uid)
        if not any(worker.pod.key.namespace == pod.key.namespace for worker in self._workers.values()):
            self._hosts.drop(pod.key.namespace)
        self._rename()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the worker of a pod has failed: a defect in trainmaster", pod=str(pod.key), exc_info=error)

    async def _detach(self) -> None:
        self._is_leaving = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._recorder.flush(1.0)

    def find(self, key: Key, name: str) -> Container | None:
        """A container of the newest pod with this name."""
        for worker in reversed(self._workers.values()):  # an older pod of the same name may still be terminating
            if worker.pod.key == key and name in worker.containers:
                return worker.containers[name]
        return None

    async def _summary(self) -> dict[str, Any]:
        """What the machine and the running containers use."""
        running = [
            Running(worker.pod.key, uid, container.name, container.shim)
            for uid, worker in self._workers.items()
            for container in worker.containers.values()
            if container.shim
        ]
        return await summary(self._options.name, running)

    def _config_map_changed(self, before: ServiceView | None, after: ServiceView | None) -> None:
        """Updates volumes at once: a program may wait for the change."""
        if (view := after or before) is not None:
            for worker in self._workers.values():
                if worker.pod.key.namespace == view.key.namespace:
                    worker.refresh(view.key.name)

    # --- names ---

    def _service_changed(self, before: JobView | None, after: JobView | None) -> None:
        view = after or before
        if view is None or view.key in self._options.services:
            return
        old = self._named_services.pop(view.key, None)
        if after is not None:
            self._named_services[view.key] = NamedService(view.key, _selector(after.raw))
        if self._named_services.get(view.key) != old:
            self._rename()

    def _rename(self) -> None:
        self._hosts.invalidate()
        self._names_changed.set()

    async def _keep_names(self) -> None:
        while True:
            await self._names_changed.wait()
            self._names_changed.clear()
            try:
                self._hosts.refresh()
            except OSError as error:
                log.warning("cannot write the names of pods", because=str(error))
            await asyncio.sleep(NAME_PAUSE)

    def _named_pods(self) -> Iterable[NamedPod]:
        for worker in self._workers.values():
            yield NamedPod.of(worker.pod, worker.address)


class _ServiceSpec(msgspec.Struct):
    selector: dict[str, str] | None = None


class _Service(msgspec.Struct):
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


def _selector(service: bytes) -> dict[str, str]:
    return msgspec.json.decode(service, type=_Service).spec.selector or {}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return "127.0.0.1\tlocalhost\n"
