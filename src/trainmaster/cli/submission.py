"""``trainmaster run --context``: creates jobs on a cluster, and shows them until all have ended."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from trainmaster.cli.exit_code import BAD_INPUT, BROKEN_PIPE, FAILED, SUCCEEDED, TIMED_OUT
from trainmaster.cli.interrupt import Interrupts
from trainmaster.cli.session import Display, open_display
from trainmaster.client.connection import Place, now
from trainmaster.client.creation import create
from trainmaster.client.job_finder import FoundJob, JobFinder, with_finder
from trainmaster.client.log_reader import CONNECTIONS, LogOptions, LogReader
from trainmaster.client.manifest import Document, placed
from trainmaster.client.program import sent_from
from trainmaster.client.run_model import Job

TICK = 0.5
"""Seconds between two updates of the screen."""


def submit(
    place: Place, documents: Sequence[Document], timeout: float, *, is_program: bool = False, is_json: bool = False
) -> int:
    """Returns the exit code. ``timeout`` is in seconds; 0 means none. Jobs that have not ended are not stopped.
    ``is_program``: the documents are no manifests, so on the local cluster they run where the command was typed."""
    code, left = BROKEN_PIPE, ""

    async def run(finder: JobFinder) -> tuple[int, str]:
        is_here = is_program and finder.connection.is_local
        sent = [sent_from(each, Path.cwd(), os.environ) for each in documents] if is_here else documents
        in_namespace = placed(sent, place.namespace, default=finder.connection.namespace)
        submission = Submission(finder, in_namespace, display)
        return await submission.run(timeout), submission.left

    try:
        with open_display(is_json=is_json) as display:
            code, left = with_finder(place, run, connections=CONNECTIONS)
            if left and is_json:
                display.message(left)
            display.end(code, "")
        if left and not is_json:
            click.echo(left)
    except* BrokenPipeError:
        # As documented by Python: without it the interpreter fails at exit to flush stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


class Submission:
    def __init__(self, finder: JobFinder, documents: Sequence[Document], display: Display) -> None:
        self._finder = finder
        self._documents = documents
        self._display = display
        self._readers: list[LogReader] = []

    async def run(self, timeout: float) -> int:
        interrupts = Interrupts()
        jobs = await create(self._finder, self._documents, lambda warning: self._display.message(f"Warning: {warning}"))
        self._say_names(jobs)
        options, has_many = LogOptions(is_all=True), len(jobs) > 1
        cluster, write = self._finder.cluster, self._write
        deleted = self._finder.deleted_pods
        self._readers = [LogReader(cluster, job, options, write, deleted=deleted, has_many=has_many) for job in jobs]
        following = asyncio.ensure_future(self._follow())
        interrupted = asyncio.ensure_future(interrupts.first.wait())
        try:
            async with asyncio.timeout(timeout or None):
                while not following.done() and not interrupted.done():
                    self._display.show(self._jobs, now())
                    await asyncio.wait((following, interrupted), timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            return self._code() if following.done() else 128 + interrupts.number
        except TimeoutError:
            return TIMED_OUT
        finally:
            following.cancel()
            interrupted.cancel()
            self._display.show(self._jobs, now(), is_last=True)

    def _say_names(self, jobs: Sequence[FoundJob]) -> None:
        for document, job in zip((each for each in self._documents if each.is_job), jobs, strict=True):
            if document.key != job.key:
                self._display.message(f"{document} exists; this job is {job}")

    async def _write(self, label: str, line: str) -> None:
        self._display.line(label, line)

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reader in self._readers:
                group.create_task(reader.follow())

    @property
    def _jobs(self) -> list[Job]:
        return [job for reader in self._readers for job in reader.jobs]

    @property
    def left(self) -> str:
        """What to type for jobs that have not ended; empty if all have."""
        names = [reader.job for reader in self._readers if not all(job.outcome for job in reader.jobs)]
        if not names:
            return ""
        first = f"{names[0]}{self._finder.connection.options_of(names[0].key.namespace)}"
        return (
            f"not ended in {self._finder.connection.title}: {', '.join(map(str, names))}; "
            f"follow with `trainmaster logs {first} --follow`, stop with `trainmaster delete {first}`"
        )

    def _code(self) -> int:
        outcomes = {job.outcome for job in self._jobs}
        if "refused" in outcomes:
            return BAD_INPUT
        return SUCCEEDED if outcomes == {"succeeded"} else FAILED
