"""Makes one pod be what it should be: look, decide, act, report; then wait for the next change."""

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
from trainmaster.local.disk import remove_folder, write_whole
from trainmaster.local.node.account import Tokens, without_account
from trainmaster.local.node.container import Container
from trainmaster.local.node.decision import Decision, Records, decide
from trainmaster.local.node.environment import (
    CONFIG_MAP,
    BadReference,
    Source,
    Surroundings,
    command_of,
    environment,
    references,
)
from trainmaster.local.node.fitness import unfit
from trainmaster.local.node.host import Host
from trainmaster.local.node.isolation import FALLBACK
from trainmaster.local.node.pod import Object, Pod
from trainmaster.local.node.process import CONTAINER, POD_UID, sweep
from trainmaster.local.node.reporter import Reporter
from trainmaster.local.node.status import status_of
from trainmaster.local.node.volume import make_volumes, mounts, token_references, volume_references

RETRY_SECONDS = 5.0
REFRESH_SECONDS = 60.0
"""How often files of config maps and secrets are compared with their objects, as a kubelet does; tokens, too. A config
map that changes is not waited for that long."""
LOST_GRACE = 1.0
"""Seconds for a pod that the API does not know any more: nobody waits for it."""
CLOCK_STEP = 0.01
"""Later than the moment that is waited for, never before it: two clocks are compared."""
MESSAGE_PATH = "/dev/termination-log"

log = structlog.get_logger(__name__)


class PodWorker:
    def __init__(self, host: Host, pod: Pod, shims: Mapping[str, int]) -> None:
        self.pod = pod = pod if host.access else without_account(pod)
        self._host = host
        self._folder = host.folder / "pods" / pod.uid
        self._must_go = False
        self._refresh_at = math.inf
        """Never, until there are files."""
        self._is_stale = False
        self._is_kept = False
        self._changed = asyncio.Event()
        self._changed.set()
        self._reporter = Reporter(host.cluster, pod)
        self._unfit = unfit(pod, host.isolation, has_accounts=host.access is not None)
        self._tokens = Tokens(host.access)
        self.containers = {
            spec["name"]: Container(
                spec,
                self._folder / "containers" / spec["name"],
                wake=self._changed.set,
                say=self._say,
                shim=host.shim,
                keeps_logs=host.keeps_logs,
            )
            for spec in (*pod.init_containers, *pod.containers)
        }
        for container in self.containers.values():
            container.adopt(shims)
        if any(record.is_running for record in self._records().values()):
            self._refresh_at = self._next_refresh(0.0)

    # --- what the agent says ---

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

    def lose(self) -> None:
        """The API does not know this pod any more: end what is left of it."""
        self._must_go = True
        self._changed.set()

    # --- the loop ---

    async def run(self) -> None:
        """Until the pod is gone from the API and from this machine."""
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
        """A disk that is full or gone must not end our care for the pod."""
        try:
            return await self._pass()
        except OSError as error:
            log.warning("cannot look after a pod, trying again", pod=str(self.pod.key), because=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            return False

    async def _pass(self) -> bool:
        """One look at everything; True when the pod is no more."""
        self._changed.clear()
        if not self._is_kept:
            self._keep()
        if time.time() >= self._refresh_at or (self._is_stale and self._refresh_at < math.inf):
            await self._refresh()
        decision = self._decide()
        for name in decision.stop:
            self.containers[name].stop(self._grace())
        if decision.start:
            await asyncio.gather(*(self._start(self.containers[name]) for name in decision.start))
            decision = self._decide()
        self._report(decision)
        if self._must_go and decision.is_over:
            return True
        await self._until(math.inf if decision.is_over else min(decision.wake_at, self._refresh_at))
        return False

    def _decide(self) -> Decision:
        return decide(
            self.pod, self._records(), time.time(), self._host.backoff, unfit=self._unfit, must_go=self._must_go
        )

    def _records(self) -> Records:
        return {name: container.record() for name, container in self.containers.items()}

    def _grace(self) -> float:
        if self._must_go:
            return min(LOST_GRACE, self.pod.grace)
        return float(self.pod.grace)

    def _report(self, decision: Decision) -> None:
        if self._must_go:
            return
        records, now = self._records(), time.time()
        self._reporter.want(
            lambda pod: status_of(pod, records, decision, now),
            then_delete=self.pod.is_deleting and decision.is_over,
        )
        for name in decision.back_off:
            waiting = f"Back-off restarting failed container {name} in pod {self.pod.key.name}"
            self._say("Warning", "BackOff", f"{waiting}_{self.pod.key.namespace}({self.pod.uid})")

    async def _until(self, moment: float) -> None:
        """Until something changed, or a time has come."""
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
        self._say("Warning", word, message if word == "FailedMount" else f"Error: {message}")

    async def _spec(self, container: Container) -> Object:
        """All that the shim needs to know."""
        pod, body, host = self.pod, container.spec, self._host
        around = await self._around({*references(body), *volume_references(pod)})
        volumes = self._folder / "volumes"
        make_volumes(pod, volumes, around)
        self._refresh_at = self._next_refresh(time.time() + REFRESH_SECONDS)
        own = environment(pod, body, around)
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
        }
        hosts = host.hosts.file(pod.key.namespace)
        env = {**host.inherited, "HOSTNAME": pod.hostname, **own, **self._marks(container)}
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

    async def _around(self, wanted: set[Source]) -> Surroundings:
        pod, host = self.pod, self._host
        found = await host.fetch(pod.key.namespace, wanted)
        return Surroundings(found, host.allocatable, await self._tokens.get(pod, set(token_references(pod))))

    def _next_refresh(self, moment: float) -> float:
        """This moment, for a pod with files that can change."""
        return moment if any(volume_references(self.pod)) or any(token_references(self.pod)) else math.inf

    async def _refresh(self) -> None:
        """Files of config maps and secrets follow their objects, tokens their time; while those cannot be had, they
        stay."""
        self._refresh_at = time.time() + REFRESH_SECONDS
        self._is_stale = False  # before it is read: what changes meanwhile is read again
        try:
            around = await self._around(set(volume_references(self.pod)))
            make_volumes(self.pod, self._folder / "volumes", around)
        except (Trainmaster, BadReference) as error:
            self._say("Warning", "FailedMount", str(error))

    def _marks(self, container: Container) -> dict[str, str]:
        """By these all processes of the container are found again, also without their shim."""
        return {POD_UID: self.pod.uid, CONTAINER: container.name}

    # --- the disk ---

    def _keep(self) -> None:
        """Remember the pod: a node that starts after us may find it gone from the API."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._folder / "pod.json", msgspec.json.encode(self.pod.body))
        self._is_kept = True

    def _remove(self) -> None:
        remove_folder(self._folder / "volumes" if self._host.keeps_logs else self._folder)

    def _say(self, kind: str, reason: str, message: str) -> None:
        self._host.teller.tell(self.pod, kind, reason, message)


def _memory_limit(container: Object) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return int(amount_of(str(limits["memory"]))) if "memory" in limits else 0


def kept_pods(folder: Path) -> dict[str, Pod | None]:
    """The pods that are on disk, by uid; None where only a folder is left."""
    found: dict[str, Pod | None] = {}
    for path in sorted((folder / "pods").glob("*")):
        try:
            found[path.name] = Pod.of((path / "pod.json").read_bytes())
        except (OSError, msgspec.DecodeError, KeyError):
            found[path.name] = None
    return found


def end_leftover(folder: Path, uid: str) -> None:
    """What is left of a pod of which nothing is known but its uid."""
    sweep(uid)
    remove_folder(folder / "pods" / uid)
