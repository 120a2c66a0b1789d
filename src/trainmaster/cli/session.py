"""One run: creates the objects of the manifests, shows the jobs until all have ended, and cleans up."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import msgspec

from trainmaster.cli import demand, reference
from trainmaster.cli.archive import LIMIT, Archive
from trainmaster.cli.exit_code import BAD_INPUT, BROKEN_PIPE, FAILED, SUCCEEDED, TIMED_OUT
from trainmaster.cli.interrupt import Interrupts
from trainmaster.cli.json_lines import JsonLines
from trainmaster.cli.keyboard import keyboard
from trainmaster.cli.log import Journal, configure_logging
from trainmaster.cli.plain import Lines
from trainmaster.cli.tail import Line, Tails
from trainmaster.client.leftover import end_leftovers
from trainmaster.client.manifest import Document, refusal
from trainmaster.client.run_model import Job, Notice, RunModel
from trainmaster.core.errors import AlreadyExists, ApiError, BadConfig, NotFound
from trainmaster.core.ids import EVENT, JOB, NAMESPACE, POD, Resource
from trainmaster.core.view import WHOLE_CODEC, JobView
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.local.gpu import find_gpus
from trainmaster.local.kept_run import kept_run
from trainmaster.local.node.registration import capacity
from trainmaster.local.state import State, default_folder, temporary_state
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store
from trainmaster.wiring.local import Local, local_cluster
from trainmaster.wiring.loop import run_loop

TICK = 0.125
"""Seconds between two reads of the logs, and between two updates of the screen."""
CLEAN_UP_SECONDS = 15.0
"""Seconds that pods may take to end beyond their grace period."""

KINDS_WITH_SERVER = frozenset({"DIJob", "NerveXJob"})
"""Kinds whose jobs request replicas from di-server."""

"""Exit codes. The last one is that of a shell after SIGPIPE."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    documents: Sequence[Document]
    timeout: float
    """Seconds; 0 means no timeout."""
    keep: bool
    logs: Path | None
    is_json: bool = False
    """One JSON object in each line instead of text."""


class Display(Protocol):
    """Output of a run."""

    most_lines: int
    """Lines of each log that are shown at a time; earlier ones are only counted and kept."""
    has_keys: bool

    def line(self, label: str, text: str) -> None: ...
    def progress(self, label: str, text: str, now: float) -> None: ...
    def show(self, jobs: Sequence[Job], now: datetime, *, is_last: bool = False) -> None: ...
    def message(self, text: str) -> None: ...
    def notice(self, notice: Notice) -> None: ...
    def press(self, key: str) -> None: ...
    def end(self, code: int, logs: str) -> None:
        """The last output; ``logs`` is a folder, or empty."""


def run_jobs(options: RunOptions) -> int:
    """Returns the exit code."""
    code = BROKEN_PIPE
    with (
        temporary_state(keep=options.keep) as state,
        Journal(state.log) as log,
        _archive(options, state) as (archive, problem),
    ):
        configure_logging("json", 0, log)
        try:
            with open_display(is_json=options.is_json, has_keys=True) as display:
                if problem:
                    display.message(f"Warning: {problem}")
                code = run_loop(_run(options, state, display, archive))
                display.end(code, str(archive.folder) if archive and not archive.is_empty else "")
        except* BrokenPipeError:
            # As documented by Python: without it the interpreter fails at exit to flush stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


@contextmanager
def _archive(options: RunOptions, state: State) -> Iterator[tuple[Archive | None, str]]:
    """The logs in the folder that the user chose, or among those of the last runs. None and the reason if they cannot
    be kept."""
    if folder := options.logs or (state.folder / "logs" if options.keep else None):
        try:
            chosen = Archive(folder)
        except OSError as error:
            raise BadConfig(f"--logs {folder}: {error.strerror}; choose another folder") from error
        yield chosen, ""
        return
    name = next((document.key.name for document in options.documents if document.is_job), "run")
    with contextlib.ExitStack() as held:
        try:
            kept = Archive(held.enter_context(kept_run(default_folder(), name, _now())), LIMIT)
        except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
            problem = f"the logs of this run are not kept: {error}; keep them with --logs DIR"
            yield None, problem
        else:
            yield kept, ""


@contextmanager
def open_display(*, is_json: bool = False, has_keys: bool = False) -> Iterator[Display]:
    if is_json or not sys.stdout.isatty():
        with JsonLines(sys.stdout) if is_json else Lines(sys.stdout) as lines:
            yield lines
        return
    from rich.console import Console

    from trainmaster.cli.live import Screen

    with Screen(Console(), has_keys=has_keys) as screen:
        yield screen


async def _run(options: RunOptions, state: State, display: Display, archive: Archive | None) -> int:
    interrupts = Interrupts()
    reference.check(options.documents)
    gpus = await _checked_gpus(options.documents)
    for warning in demand.warnings(options.documents, capacity()):
        display.message(f"Warning: {warning}")
    try:
        kinds = sorted({document.resource.kind for document in options.documents if document.is_job})
        has_server = not KINDS_WITH_SERVER.isdisjoint(kinds)
        async with local_cluster(
            state, workdir=Path.cwd(), has_server=has_server, kinds=kinds, gpus=gpus, keeps_logs=True
        ) as local:
            if local.warning:
                display.message(f"Warning: {local.warning}")
            session = Session(options, local, display, interrupts, Tails(state.node, display.most_lines), archive)
            async with asyncio.TaskGroup() as group:
                watching = [group.create_task(reflector.run()) for reflector in session.reflectors]
                with keyboard(session.press) if display.has_keys else contextlib.nullcontext():
                    code = await session.run()
                for task in watching:
                    task.cancel()
    finally:
        await end_leftovers(state.node)
    session.show_result()
    return code


async def _checked_gpus(documents: Sequence[Document]) -> tuple[str, ...] | None:
    """Raises ``BadConfig`` if a pod requests more GPUs than this machine has; None if no pod requests any."""
    if not demand.requests_gpus(documents):
        return None
    gpus = await asyncio.to_thread(find_gpus, os.environ)
    demand.check_gpus(documents, gpus, os.environ)
    return gpus


class Session:
    def __init__(
        self,
        options: RunOptions,
        local: Local,
        display: Display,
        interrupts: Interrupts,
        tails: Tails,
        archive: Archive | None,
    ) -> None:
        self._options = options
        self._cluster = local.cluster
        self._display = display
        self._interrupts = interrupts
        self._jobs = [document for document in options.documents if document.is_job]
        self._created: list[tuple[Document, str]] = []
        served = all_resource_kinds(Settings())
        slots = {resource: [kind.slots for kind in each.kinds] for each in served for resource in each.resources}
        kinds = {resource: each for each in served for resource in each.resources}
        self._model = RunModel(slots, kinds=kinds, has_many=len(self._jobs) > 1)
        self._tails = tails
        self._archive = archive
        self._changed = asyncio.Event()
        self._shown = 0
        resources = {job.resource: None for job in self._jobs}
        has_batch_jobs = any(JOB in each.children for each in served if not resources.keys().isdisjoint(each.resources))
        owners = (JOB,) if has_batch_jobs else ()
        self.reflectors = [self._reflector(resource) for resource in (*owners, POD, *resources, EVENT)]

    async def run(self) -> int:
        deadline = _clock() + self._options.timeout if self._options.timeout else float("inf")
        await self._create()
        is_over = await self._follow(self._is_over, self._interrupts.first, deadline)
        code = self._code(is_over)
        if code not in (SUCCEEDED, FAILED) or self._model.has_active_pods:
            await self._stop(code)
        return code

    def show_result(self) -> None:
        """Shows the remaining log lines and how the jobs ended. Called after the cluster has stopped: killed processes
        write until then, and an incomplete line is stored only after its container has ended."""
        self._take_lines(self._tails.finish())
        while self._tails.has_more:
            self._take_lines(self._tails.finish())
        self._display.show(self._model.jobs, _now(), is_last=True)

    def _reflector(self, resource: Resource) -> Reflector[JobView]:
        store = Store[JobView](resource)

        def observe(before: JobView | None, after: JobView | None) -> None:
            if resource == EVENT:
                notice = self._model.observe_event(after) if after else None
                if notice is not None:
                    self._display.notice(notice)
            elif resource == POD:
                self._tails.see(self._model.observe_pod(before, after))
            elif resource == JOB:
                self._model.observe_child(before, after)
            else:
                self._model.observe_job(resource, before, after)
            self._changed.set()

        store.listen(observe)
        return Reflector(self._cluster, store, WHOLE_CODEC)

    # --- steps of a run ---

    async def _create(self) -> None:
        documents = self._options.documents
        declared = {document.key.name for document in documents if document.resource == NAMESPACE}
        places = {document.key.namespace: document.where for document in reversed(documents)}
        for namespace in sorted(places.keys() - declared - {"", "default"}):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            try:
                await self._cluster.create(NAMESPACE, "", msgspec.json.encode(body))
            except AlreadyExists:
                pass
            except ApiError as error:
                raise BadConfig(f"{places[namespace]}: {error}") from error
        for document in documents:
            encoded = msgspec.json.encode(document.body)
            try:
                written = await self._cluster.create(document.resource, document.key.namespace, encoded)
            except ApiError as error:
                raise BadConfig(refusal(document, error)) from error
            for warning in written.warnings:
                self._message(f"Warning: {document.where}: {document}: {warning}")
            self._created.append((document, written.uid))
            if document.is_job:
                self._model.expect(document.resource, written.uid)

    def _is_over(self) -> bool:
        outcomes = [self._model.outcome(job.resource, job.key) for job in self._jobs]
        return "refused" in outcomes or all(outcomes)

    def _code(self, is_over: bool) -> int:
        if not is_over:
            if not self._interrupts.first.is_set():
                return TIMED_OUT
            return 128 + self._interrupts.number
        outcomes = {job.outcome for job in self._model.jobs}
        if "refused" in outcomes:
            return BAD_INPUT
        return SUCCEEDED if outcomes == {"succeeded"} else FAILED

    async def _stop(self, code: int) -> None:
        """Deletes the jobs and waits until their pods have ended, or until another signal."""
        grace = self._model.longest_grace
        if code == TIMED_OUT:
            self._model.stop(f"stopped, because --timeout was reached after {self._options.timeout:g} s")
            self._message(f"timed out, stopping: pods have {grace} s to end")
        elif self._interrupts.first.is_set():
            number = self._interrupts.number
            self._model.stop(
                "stopped by Ctrl-C" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
            )
            self._message(f"stopping: pods have {grace} s to end; Ctrl-C again kills them at once")
        for document, uid in self._created:
            if document.is_job or document.resource == POD:
                with contextlib.suppress(NotFound):
                    await self._cluster.delete(document.resource, document.key, uid=uid)
        deadline = _clock() + grace + CLEAN_UP_SECONDS
        kill_now = self._interrupts.second if self._interrupts.first.is_set() else self._interrupts.first
        await self._follow(lambda: not self._model.has_active_pods, kill_now, deadline)

    async def _follow(self, is_done: Callable[[], bool], stop: asyncio.Event, deadline: float) -> bool:
        """Shows the run until it is done (True), or until a signal or the deadline (False)."""
        while not (done := is_done()) and not stop.is_set() and _clock() < deadline:
            await self._show()
            if self._tails.has_more:
                await asyncio.sleep(0)
                continue
            await _any((self._changed, stop), TICK)
            if self._changed.is_set() and not is_done():
                await _any((stop,), TICK)  # a burst of changes causes one update
        await self._show()
        return done

    # --- output ---

    async def _show(self) -> None:
        has_lines = await self._read_logs()
        now = _now()
        second = int(now.timestamp())
        if has_lines or self._changed.is_set() or second != self._shown:  # ages are in whole seconds
            self._changed.clear()
            self._shown = second
            self._display.show(self._model.jobs, now)

    async def _read_logs(self) -> bool:
        """Reads what is new, for one tick at most; False if there is nothing."""
        deadline = _clock() + TICK
        self._take_lines(lines := self._tails.read())
        while self._tails.has_more and _clock() < deadline:
            await asyncio.sleep(0)  # the cluster is in the same process
            self._take_lines(self._tails.read())
        return bool(lines)

    def press(self, key: str) -> None:
        self._display.press(key)
        self._changed.set()

    def _message(self, text: str) -> None:
        self._display.message(text)
        self._changed.set()

    def _take_lines(self, lines: list[Line]) -> None:
        for line in lines:
            if line.text is not None:
                self._show_line(line, line.text)
            elif line.skipped:
                self._model.observe_skipped(line.uid, line.skipped)
        if self._archive and lines:
            try:
                for uid, group in groupby(sorted(lines, key=lambda line: line.uid), key=lambda line: line.uid):
                    self._archive.put(self._model.pod_name(uid), list(group))
            except OSError as error:
                self._message(f"cannot write logs into {self._archive.folder} any more: {error.strerror}")
                self._archive = None

    def _show_line(self, line: Line, text: str) -> None:
        label = self._model.label(line.uid, line.container).ljust(self._model.label_width)
        if not line.is_open:
            self._display.line(label, text)
            self._model.observe_line(line.uid, text)
            return
        self._model.observe_unfinished(line.uid, text)
        if line.is_bar:
            self._display.progress(label, text, _clock())


async def _any(events: Sequence[asyncio.Event], seconds: float) -> None:
    """Waits for one of the events, at most ``seconds``."""
    waiting: list[asyncio.Task[Any]] = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _now() -> datetime:
    return datetime.now(UTC)
