"""The worker of one pod: observe, decide, act, report; then wait for the next change."""

import asyncio
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from trainmaster.core.errors import Trainmaster
from trainmaster.core.quantity import amount_of
from trainmaster.local import deleted_log
from trainmaster.local.disk import remove_folder, write_whole
from trainmaster.local.gpu import VISIBLE, gpus_of, share_of
from trainmaster.local.node.account import Tokens, without_account
from trainmaster.local.node.address import has_own
from trainmaster.local.node.admission import rejection
from trainmaster.local.node.container import Container
from trainmaster.local.node.decision import Decision, PodFailure, Records, decide
from trainmaster.local.node.environment import (
    CONFIG_MAP,
    BadReference,
    Source,
    VariableContext,
    command_of,
    direct,
    environment,
    references,
)
from trainmaster.local.node.host import Host
from trainmaster.local.node.isolation import FALLBACK
from trainmaster.local.node.pod import Object, Pod
from trainmaster.local.node.process import CONTAINER, POD_UID, pod_of, running_shims, sweep
from trainmaster.local.node.reporter import Reporter
from trainmaster.local.node.security import limits_of, refusal, unmet
from trainmaster.local.node.status import status_of
from trainmaster.local.node.volume import make_volumes, mounts, token_references, volume_references

RETRY_SECONDS = 5.0
REFRESH_SECONDS = 60.0
"""How often files of config maps and secrets, and tokens, are compared with their objects, as in a kubelet. A change of
a config map is applied earlier."""
GONE_GRACE = 1.0
"""Grace period in seconds of a pod that is no longer in the API."""
CLOCK_STEP = 0.01
"""Seconds added to each wait: by the wall clock, the event loop's clock may end it slightly early."""
MESSAGE_PATH = "/dev/termination-log"
STOPPED = "stopped"
"""A file in the folder of a pod whose containers were ended with the cluster."""

log = structlog.get_logger(__name__)


class PodWorker:
    def __init__(self, host: Host, pod: Pod, shims: Mapping[str, int]) -> None:
        self.pod = pod = pod if host.access else without_account(pod)
        self._host = host
        self.address = host.addresses.take(pod)
        self._folder = host.folder / "pods" / pod.uid
        self._is_gone = False
        self._refresh_at = math.inf
        """Infinite while the pod has no files that can change."""
        self._is_stale = False
        self._is_kept = False
        self._changed = asyncio.Event()
        self._changed.set()
        self._reporter = Reporter(host.cluster, pod)
        self._rejection = (
            refusal(pod, host.policy)
            or rejection(pod, host.isolation, has_accounts=host.access is not None)
            or _shutdown(pod, self._folder)
        )
        self._tokens = Tokens(host.access)
        self.containers = {
            spec["name"]: Container(
                spec,
                self._folder / "containers" / spec["name"],
                wake=self._changed.set,
                record_event=self._record_event,
                shim=host.shim,
                keeps_logs=host.keeps_logs,
                address=self.address,
            )
            for spec in (*pod.init_containers, *pod.containers)
        }
        for container in self.containers.values():
            container.adopt(shims)
            host.gpus.keep(pod.uid, container.gpus)
        if any(record.is_running for record in self._records().values()):
            self._refresh_at = self._next_refresh(0.0)

    # --- called by the agent ---

    def see(self, pod: Pod) -> None:
        """A newer version of the same pod."""
        self.pod = pod = pod if self._host.access else without_account(pod)
        self._reporter.see(pod)
        self._changed.set()

    def refresh(self, config_map: str) -> None:
        """This config map changed."""
        if Source(CONFIG_MAP, config_map) in volume_references(self.pod):
            self._is_stale = True
            self._changed.set()

    def mark_gone(self) -> None:
        """The pod is no longer in the API: end its processes."""
        self._is_gone = True
        self._changed.set()

    # --- the loop ---

    async def run(self) -> None:
        """Runs until the pod is deleted from the API and from this machine."""
        reporting = asyncio.ensure_future(self._reporter.run())
        try:
            while not await self._try_pass():
                pass
            await asyncio.to_thread(self._remove)
        finally:
            reporting.cancel()
            for container in self.containers.values():
                container.detach()
            await asyncio.gather(
                reporting, *(each.closed() for each in self.containers.values()), return_exceptions=True
            )

    async def _try_pass(self) -> bool:
        """An error of the disk must not stop the worker."""
        try:
            return await self._pass()
        except OSError as error:
            log.warning("cannot sync a pod, retrying", pod=str(self.pod.key), because=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            return False

    async def _pass(self) -> bool:
        """One pass; True if the pod no longer exists."""
        self._changed.clear()
        if not self._is_kept:
            self._keep()
            self._mention_ignored()
            self._mention_shared_address()
        if time.time() >= self._refresh_at or (self._is_stale and self._refresh_at < math.inf):
            await self._refresh()
        decision = self._decide()
        for name in decision.stop:
            self.containers[name].stop(self._grace())
        if decision.start:
            await asyncio.gather(*(self._start(self.containers[name]) for name in decision.start))
            decision = self._decide()
        self._report(decision)
        if decision.is_over:
            self._refresh_at = math.inf  # as a kubelet: nobody reads the files of a pod that has ended
        if self._is_gone and decision.is_over:
            return True
        await self._until(math.inf if decision.is_over else min(decision.wake_at, self._refresh_at))
        return False

    def _decide(self) -> Decision:
        return decide(
            self.pod, self._records(), time.time(), self._host.backoff, rejection=self._rejection, is_gone=self._is_gone
        )

    def _records(self) -> Records:
        return {name: container.record() for name, container in self.containers.items()}

    def _grace(self) -> float:
        if self._is_gone:
            return min(GONE_GRACE, self.pod.grace)
        return float(self.pod.grace)

    def _report(self, decision: Decision) -> None:
        if self._is_gone:
            return
        if decision.is_over:
            self._host.gpus.release(self.pod.uid)  # before the API shows that the pod has ended
        records, now = self._records(), time.time()
        self._reporter.want(
            lambda pod: status_of(pod, records, decision, now, address=self.address),
            then_delete=self.pod.is_deleting and decision.is_over,
        )
        for name in decision.back_off:
            waiting = f"Back-off restarting failed container {name} in pod {self.pod.key.name}"
            self._record_event("Warning", "BackOff", f"{waiting}_{self.pod.key.namespace}({self.pod.uid})")

    async def _until(self, moment: float) -> None:
        """Waits for a change, at most until ``moment``."""
        try:
            async with asyncio.timeout(None if moment == math.inf else max(0.0, moment - time.time()) + CLOCK_STEP):
                await self._changed.wait()
        except TimeoutError:
            pass

    # --- starting ---

    async def _start(self, container: Container) -> None:
        try:
            async with self._host.starting:
                spec = await self._spec(container)
                await container.start(spec, self._marks(container))
        except BadReference as error:
            is_volume = str(error).startswith("MountVolume")
            self._postpone(container, "ContainerCreating" if is_volume else "CreateContainerConfigError", str(error))
        except (Trainmaster, OSError) as error:
            self._postpone(container, "CreateContainerError", str(error))
        except (KeyError, ValueError) as error:
            self._postpone(container, "CreateContainerConfigError", f"the pod cannot be understood: {error}")

    def _postpone(self, container: Container, reason: str, message: str) -> None:
        container.wait(reason, message, RETRY_SECONDS)
        word = "FailedMount" if reason == "ContainerCreating" else "Failed"
        self._record_event("Warning", word, message if word == "FailedMount" else f"Error: {message}")

    async def _spec(self, container: Container) -> Object:
        """The spec file of the shim."""
        pod, body, host = self.pod, container.spec, self._host
        context = await self._context({*references(body), *volume_references(pod)})
        volumes = self._folder / "volumes"
        make_volumes(pod, volumes, context)
        self._refresh_at = self._next_refresh(time.time() + REFRESH_SECONDS)
        own = environment(pod, body, context)
        gpus = host.gpus.take(pod.uid, gpus_of(pod.spec))
        attempt = container.attempt_folder()
        spec: Object = {
            "uid": pod.uid,
            "container": container.name,
            "argv": command_of(body, own),
            "cwd": body.get("workingDir") or str(host.workdir),
            "namespaces": host.isolation.mode,
            "hostname": pod.hostname,
            "staging": str(attempt / "staging"),
            "memory": _memory_limit(body),
            "messageFile": str(attempt / "message"),
            "messagePolicy": body.get("terminationMessagePolicy", "File"),
            "grace": pod.grace,
            "owner": os.getpid() if host.is_last else 0,
            "limits": limits_of(pod, body),
            "isLogConsumed": host.keeps_logs,
            "gpus": gpus,
        }
        hosts = host.hosts.file(pod.key.namespace)
        visible = share_of(pod.spec, container.name, gpus)
        env = {
            **host.inherited,
            **direct(host.inherited, pod.key.namespace),
            **({VISIBLE: ",".join(visible)} if visible else {}),
            "HOSTNAME": pod.hostname,
            **own,
            **self._marks(container),
        }
        if host.isolation.mode:
            spec["mounts"] = [
                *mounts(pod, body, volumes, own),
                *host.resolver_mounts,
                {"source": str(hosts), "target": "/etc/hosts"},
                {"source": spec["messageFile"], "target": body.get("terminationMessagePath") or MESSAGE_PATH},
            ]
        else:
            spec["mounts"] = []
            path = env.get("PYTHONPATH")
            env |= {
                "TRAINMASTER_HOSTS": str(hosts),
                "PYTHONPATH": f"{FALLBACK}:{path}" if path else str(FALLBACK),
            }
        spec["env"] = env
        return spec

    async def _context(self, wanted: set[Source]) -> VariableContext:
        pod, host = self.pod, self._host
        sources = await host.fetch(pod.key.namespace, wanted)
        tokens = await self._tokens.get(pod, set(token_references(pod)))
        return VariableContext(sources, host.allocatable, tokens, self.address)

    def _next_refresh(self, moment: float) -> float:
        """``moment`` if the pod has files that can change."""
        return moment if any(volume_references(self.pod)) or any(token_references(self.pod)) else math.inf

    async def _refresh(self) -> None:
        """Updates files of config maps and secrets, and tokens. If the API server fails, the old ones stay."""
        self._refresh_at = time.time() + REFRESH_SECONDS
        self._is_stale = False  # before the read: later changes cause another read
        try:
            context = await self._context(set(volume_references(self.pod)))
            make_volumes(self.pod, self._folder / "volumes", context)
        except (Trainmaster, BadReference) as error:
            self._record_event("Warning", "FailedMount", str(error))

    def _marks(self, container: Container) -> dict[str, str]:
        """Variables that mark all processes of the container, so that they are found without their shim."""
        return {POD_UID: self.pod.uid, CONTAINER: container.name}

    def _mention_ignored(self) -> None:
        """Fields that the pod has and that are not done."""
        ignored = "" if self._rejection else "; ".join(map(str, unmet(self.pod, self._host.policy.identity)))
        if ignored:
            self._record_event("Warning", "SecurityContextIgnored", ignored)

    def _mention_shared_address(self) -> None:
        if (because := self._host.addresses.why_single) and has_own(self.pod):
            self._record_event(
                "Warning",
                "AddressShared",
                f"the pod has the address {self.address}, as all pods here, because this system has no other loopback "
                f"addresses ({because}); two pods cannot listen on the same port: use different ports, or Linux",
            )

    # --- the disk ---

    def _keep(self) -> None:
        """Stores the pod with its address: it may be deleted from the API before the next node starts."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = {**self.pod.body, "status": {**self.pod.status, "podIP": self.address}}
        write_whole(self._folder / "pod.json", msgspec.json.encode(body))
        self._is_kept = True

    def _remove(self) -> None:
        if self._host.keeps_deleted_logs and self._folder.exists():
            try:
                deleted_log.keep(self._host.folder, self.pod.body, self._folder)
            except OSError as error:
                log.warning("cannot keep the logs of a deleted pod", pod=str(self.pod.key), because=str(error))
        remove_folder(self._folder / "volumes" if self._host.keeps_logs else self._folder)

    def _record_event(self, kind: str, reason: str, message: str) -> None:
        self._host.events.record(self.pod, kind, reason, message)


def _memory_limit(container: Object) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return int(amount_of(str(limits["memory"]))) if "memory" in limits else 0


def mark_stopped(folder: Path) -> None:
    """The cluster is stopped, and all containers with it: when it is started again, their pods are reported as ended
    by their node, however their programs ended."""
    for spec in running_shims(folder):
        (folder / "pods" / pod_of(spec) / STOPPED).touch()


def _shutdown(pod: Pod, folder: Path) -> PodFailure | None:
    """The reason is that of a kubelet whose machine is shut down. Pods that restart in place just do so."""
    if pod.restart_policy != "Never" or not (folder / STOPPED).exists():
        return None
    return PodFailure("Terminated", "the local cluster was stopped")


def kept_pods(folder: Path) -> dict[str, Pod | None]:
    """The pods on disk, by uid; None if only the folder is left."""
    pods: dict[str, Pod | None] = {}
    for path in sorted((folder / "pods").glob("*")):
        try:
            pods[path.name] = Pod.of((path / "pod.json").read_bytes())
        except (OSError, msgspec.DecodeError, KeyError):
            pods[path.name] = None
    return pods


def end_leftover(folder: Path, uid: str) -> None:
    """Ends the processes of a pod of which only the uid is known."""
    sweep(uid)
    remove_folder(folder / "pods" / uid)
