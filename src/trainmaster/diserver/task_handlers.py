"""Handles the requests of v2alpha1, which are about DIJobs with tasks."""

from trainmaster.core.ids import Key
from trainmaster.core.plan import normal
from trainmaster.diserver import answer, metrics
from trainmaster.diserver.access import Access
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.caller import Caller
from trainmaster.diserver.finder import Target
from trainmaster.diserver.handlers import COMPONENT, Done
from trainmaster.diserver.job import TaskJob
from trainmaster.diserver.limits import RequestLimits, check_open
from trainmaster.diserver.profiling import ProfilingWriter
from trainmaster.diserver.refusal import Refused
from trainmaster.diserver.request import difference_of, digest_of
from trainmaster.diserver.types import ScaleRequest
from trainmaster.diserver.writer import DeclarationWriter, Stored
from trainmaster.kinds.ditask.request import Change, scaled, with_requests
from trainmaster.kinds.ditask.role import scaled_task, tasks_of
from trainmaster.kinds.ditask.types import Task
from trainmaster.runtime.recorder import Recorder


class TaskHandlers:
    def __init__(
        self,
        cache: Cache,
        access: Access,
        writer: DeclarationWriter,
        profilings: ProfilingWriter,
        limits: RequestLimits,
        recorder: Recorder,
    ) -> None:
        self._cache = cache
        self._access = access
        self._writer = writer
        self._profilings = profilings
        self._limits = limits
        self._recorder = recorder

    async def get(self, job: Key, caller: Caller) -> Done:
        known = await self._authorised(job, caller)
        if not known.answer:
            addresses = answer.addresses_of(known.job, self._cache.pods_of(known))
            known.answer = answer.success(answer.GOT, addresses)
        return Done(known.answer)

    async def add(self, job: Key, request: ScaleRequest, caller: Caller) -> Done:
        stored = await self._scale(job, "POST", request, difference_of(request), caller)
        return Done(answer.success(answer.ADDED, None), stored)

    async def delete(self, job: Key, request: ScaleRequest, caller: Caller) -> Done:
        stored = await self._scale(job, "DELETE", request, -difference_of(request), caller)
        return Done(answer.success(answer.DELETED, None), stored)

    async def report(self, job: Key, profilings: bytes, caller: Caller) -> Done:
        await self._profilings.report(await self._authorised(job, caller), profilings)
        return Done(answer.success(answer.REPORTED, None))

    async def _authorised(self, job: Key, caller: Caller) -> TaskJob:
        known, _ = await self._access.job_of(Target(job, is_job=True), caller)
        if not isinstance(known, TaskJob):
            raise Refused(400, f"{known.id} has a coordinator, and no tasks: use /v1alpha1/replicas")
        return known

    async def _scale(
        self, job: Key, verb: str, request: ScaleRequest, difference: int, caller: Caller
    ) -> Stored[TaskJob]:
        known = await self._authorised(job, caller)

        def decide(known: TaskJob) -> Change:
            check_open(known)
            task = _task(known, request.task)
            _check_bounds(known, task, task.replicas + difference)
            requests = scaled(known.job, task.name, task.replicas + difference)
            self._limits.check_tasks(known, with_requests(known.job, requests))
            return Change(requests)

        # Equal requests of two callers are two requests.
        stored = await self._writer.store(known, digest_of(f"{verb} {caller.name}", request), "", decide)
        self._record(stored, request.task, difference)
        return stored

    def _record(self, stored: Stored[TaskJob], name: str | None, difference: int) -> None:
        if not stored.is_new:
            metrics.RETRIES.inc()
            return
        known, verb = stored.known, "create" if difference > 0 else "delete"
        metrics.DECLARED.labels(verb).inc(abs(difference))
        if stored.request:
            task = _task(known, name)
            message = (
                f"task {task.name} was scaled through di-server from {task.replicas - difference} to {task.replicas}"
            )
            self._recorder.record(known.profile.resource, known.view, COMPONENT, normal("TaskScaled", message))


def _task(known: TaskJob, name: str | None) -> Task:
    """The task that a request is about, with the replicas that it has now."""
    tasks = tasks_of(known.job)
    name = name or scaled_task(known.job.spec)
    if not name:
        raise Refused(400, f"{known.id} has no collector: add the name of a task, {', '.join(tasks)}, as task")
    if name not in tasks:
        raise Refused(400, f"{known.id} has no task {name[:300]!r}; there are {', '.join(tasks)}")
    return tasks[name]


def _check_bounds(known: TaskJob, task: Task, replicas: int) -> None:
    least, most = task.min_replicas or 1, task.max_replicas
    if replicas < least:
        bound = f"minReplicas is {least}" if task.min_replicas else "a task has at least 1"
    elif most and replicas > most:
        bound = f"maxReplicas is {most}"
    else:
        return
    raise Refused(400, f"task {task.name} of {known.id} would have {replicas} replicas: {bound}; nothing was changed")
