"""One container of a pod on this node: its attempts on disk, the running one, its probes and its termination."""

import asyncio
import contextlib
import shutil
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.local.node.attempt import Attempt, attempts_in
from trainmaster.local.node.backoff import streak_after
from trainmaster.local.node.pod import Object, seconds_of
from trainmaster.local.node.probe import Target, keep_probing, run_handler
from trainmaster.local.node.record import Record, Waiting
from trainmaster.local.node.session import Options, Session

KEPT_ATTEMPTS = 2
"""The newest attempt and the one before, for ``kubectl logs --previous``."""
RecordEvent = Callable[[str, str, str], None]
"""Records an event on the pod: type, reason, message."""


class Container:
    """``wake`` is called whenever ``record`` may have changed."""

    def __init__(
        self,
        spec: Object,
        folder: Path,
        *,
        wake: Callable[[], None],
        record_event: RecordEvent,
        shim: Sequence[str],
        keeps_logs: bool,
        address: str,
    ) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self._folder = folder
        self._wake = wake
        self._record_event = record_event
        self._shim = shim
        self._keeps_logs = keeps_logs
        self._address = address
        self._attempt: Attempt | None = None
        self._previous: Attempt | None = None
        self._waiting: Waiting | None = None
        self._retry_at = 0.0
        self._streak = 0
        self._is_ready = False
        self._has_started = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._kill_at: float | None = None
        self._killer: asyncio.TimerHandle | None = None

    # --- state ---

    def record(self) -> Record:
        attempt, ended = self._attempt, self._attempt.ended if self._attempt else None
        return Record(
            name=self.name,
            attempt=attempt.number if attempt else -1,
            started_at=attempt.started_at if attempt else "",
            ended=ended,
            previous=self._previous.ended if self._previous else None,
            waiting=self._waiting,
            retry_at=self._retry_at,
            streak=self._streak_now(),
            is_ready=self._is_ready and ended is None,
            has_started=self._has_started and ended is None,
        )

    def _streak_now(self) -> int:
        ended = self._attempt.ended if self._attempt else None
        if ended is None:
            return self._streak
        return streak_after(self._streak, seconds_of(ended.finished_at) - seconds_of(ended.started_at))

    # --- actions ---

    def adopt(self, shims: Mapping[str, int]) -> None:
        """Adopts the attempt that an earlier node left: running, ended, or never started."""
        attempts = []
        for folder in attempts_in(self._folder):
            attempt = Attempt(folder, self._ended)
            if attempt.adopt(shims):
                attempts.append(attempt)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        if attempts:
            self._attempt = attempts[-1]
            self._previous = attempts[-2] if len(attempts) > 1 else None
            self._streak = self._attempt.spec.get("streak", 0)
            if self._attempt.ended is None:
                self._begin()

    def wait(self, reason: str, message: str, seconds: float) -> None:
        """The container cannot be started now; it is tried again after ``seconds``."""
        self._waiting, self._retry_at = Waiting(reason, message), time.time() + seconds

    async def start(self, spec: Object, environ: Mapping[str, str]) -> None:
        number = self._attempt.number + 1 if self._attempt else 0
        streak = self._streak_now()
        attempt = Attempt(self._folder / str(number), self._ended)
        try:
            await attempt.start({**spec, "streak": streak}, environ, self._shim)
        except BaseException:
            attempt.detach()
            raise
        self._previous, self._attempt, self._streak = self._attempt, attempt, streak
        self._waiting, self._retry_at = None, 0.0
        if not self._keeps_logs:
            self._forget_old()
        if attempt.ended is None:
            self._begin()
            self._record_event("Normal", "Started", f"Started container {self.name}")
        elif not attempt.pid:
            self._record_event("Warning", "Failed", f"Error: {attempt.ended.message}")

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs of its pod while it runs."""
        is_running = self._attempt is not None and self._attempt.ended is None
        return tuple(self._attempt.spec.get("gpus") or ()) if self._attempt and is_running else ()

    def attempt_folder(self) -> Path:
        """The folder of the next attempt."""
        return self._folder / str(self._attempt.number + 1 if self._attempt else 0)

    def stop(self, grace: float) -> None:
        """Terminates the container within ``grace`` seconds. A later call can only shorten the grace period."""
        if self._attempt is None or self._attempt.ended is not None:
            return
        loop = asyncio.get_running_loop()
        kill_at = loop.time() + grace
        is_first = self._kill_at is None
        if self._kill_at is None or kill_at < self._kill_at:
            self._kill_at = kill_at
            if self._killer:
                self._killer.cancel()
            self._killer = loop.call_at(kill_at, self._attempt.kill)
        if is_first:
            self._record_event("Normal", "Killing", f"Stopping container {self.name}")
            self._spawn(self._stop_gracefully(self._attempt, grace))

    async def _stop_gracefully(self, attempt: Attempt, grace: float) -> None:
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace > 0:
            outcome = await run_handler(hook, self._target(attempt), grace)
            if not outcome.ok:
                self._record_event("Warning", "FailedPreStopHook", f"PreStopHook failed: {outcome.message}")
        if grace > 0:
            attempt.terminate()

    def detach(self) -> None:
        """Stops watching the container and leaves its processes running."""
        if self._attempt:
            self._attempt.detach()
        for task in self._tasks:
            task.cancel()
        if self._killer:
            self._killer.cancel()

    async def closed(self) -> None:
        """Waits for its tasks to end after ``detach``."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- logs ---

    def log(self, *, previous: bool = False) -> "tuple[Path, Callable[[], bool]] | None":
        """The log of the newest attempt or of the one before, and whether it is still being written."""
        attempt = self._previous if previous else self._attempt
        return (attempt.log, lambda: attempt.ended is None) if attempt else None

    @property
    def shim(self) -> int:
        """The pid of the shim of a running attempt; 0 if there is none."""
        return self._attempt.shim if self._attempt and self._attempt.runs() else 0

    # --- commands ---

    async def session(self, options: Options) -> Session | None:
        """Starts a command inside the container, which ends with it; None if the container does not run."""
        attempt = self._attempt
        if attempt is None or not attempt.runs():
            return None
        session = await Session.start(options, self._target(attempt))
        self._sessions.add(session)
        if not attempt.runs():  # it has ended meanwhile
            session.kill()
        return session

    # --- a running container ---

    def _begin(self) -> None:
        assert self._attempt is not None  # noqa: S101  set by the caller
        self._kill_at, self._killer = None, None
        startup = self.spec.get("startupProbe")
        self._has_started, self._is_ready = startup is None, False
        if hook := (self.spec.get("lifecycle") or {}).get("postStart"):
            self._spawn(self._after_start(hook, self._attempt))
        if startup:
            self._probe("Startup", startup, initially=False, then=self._startup_changed)
        else:
            self._begin_probes()

    def _begin_probes(self) -> None:
        readiness, liveness = self.spec.get("readinessProbe"), self.spec.get("livenessProbe")
        self._is_ready = readiness is None
        if readiness:
            self._probe("Readiness", readiness, initially=False, then=self._readiness_changed)
        if liveness:
            self._probe("Liveness", liveness, initially=True, then=self._liveness_changed)

    async def _after_start(self, hook: Object, attempt: Attempt) -> None:
        outcome = await run_handler(hook, self._target(attempt), 3600.0)
        if not outcome.ok and attempt.ended is None:
            self._record_event("Warning", "FailedPostStartHook", f"PostStartHook failed: {outcome.message}")
            self.stop(self._grace({}))

    def _probe(self, kind: str, probe: Object, *, initially: bool, then: Callable[[bool, Object], None]) -> None:
        attempt = self._attempt
        assert attempt is not None  # noqa: S101  only a running container is probed

        def changed(ok: bool) -> None:
            if attempt is self._attempt and attempt.ended is None:
                then(ok, probe)

        def failure(message: str) -> None:
            if attempt.ended is None and self._kill_at is None:
                self._record_event("Warning", "Unhealthy", f"{kind} probe failed: {message}")

        self._spawn(
            keep_probing(
                probe,
                initially=initially,
                ask=lambda timeout: run_handler(probe, self._target(attempt), timeout),
                on_change=changed,
                on_failure=failure,
            )
        )

    def _startup_changed(self, ok: bool, probe: Object) -> None:
        if not ok:
            self._restart("startup", probe)
        elif not self._has_started:
            self._has_started = True
            self._begin_probes()
            self._wake()

    def _readiness_changed(self, ok: bool, probe: Object) -> None:
        if ok != self._is_ready:
            self._is_ready = ok
            self._wake()

    def _liveness_changed(self, ok: bool, probe: Object) -> None:
        if not ok:
            self._restart("liveness", probe)

    def _restart(self, kind: str, probe: Object) -> None:
        """Terminates the container; the restart policy decides whether it is started again."""
        if self._kill_at is None:
            self._record_event("Normal", "Killing", f"Container {self.name} failed {kind} probe, will be restarted")
        self.stop(self._grace(probe))

    def _grace(self, probe: Object) -> float:
        assert self._attempt is not None  # noqa: S101
        own = probe.get("terminationGracePeriodSeconds")
        return float(self._attempt.spec["grace"] if own is None else own)

    def _target(self, attempt: Attempt) -> Target:
        spec = attempt.spec
        ports = {port["name"]: port["containerPort"] for port in self.spec.get("ports") or () if "name" in port}
        return Target(
            shim=self._shim,
            folder=attempt.folder,
            pid=attempt.main_pid(),
            cwd=spec["cwd"],
            env=spec["env"],
            ports=ports,
            address=self._address,
            limits=spec.get("limits") or {},  # an older node wrote none
        )

    def _ended(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._killer:
            self._killer.cancel()
        for session in self._sessions:
            session.kill()
        self._kill_at, self._killer = None, None
        self._wake()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget_old(self) -> None:
        for folder in attempts_in(self._folder)[:-KEPT_ATTEMPTS]:
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)
