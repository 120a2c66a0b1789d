"""The Python API for scripts and notebooks: ``async_client`` in a thread of its own."""

import warnings
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from typing import Self, overload

from trainmaster.client.async_client import AsyncClient, AsyncJobHandle, AsyncJobList, File, LogLine, Manifest
from trainmaster.client.background import Background, close_at_exit, forget
from trainmaster.client.connection import now
from trainmaster.client.errors import TrainmasterError
from trainmaster.client.html import job_table
from trainmaster.client.job import Job
from trainmaster.client.status import JobStatus


class JobHandle:
    """A job of a cluster. In a notebook it is a table with its state and the last output of its replicas."""

    def __init__(self, loop: Background, job: AsyncJobHandle) -> None:
        self._loop = loop
        self._job = job

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def namespace(self) -> str:
        return self._job.namespace

    @property
    def kind(self) -> str:
        return self._job.kind

    def __str__(self) -> str:
        return str(self._job)

    def __repr__(self) -> str:
        return repr(self._job)

    def _repr_html_(self) -> str:
        """As it is now; if it cannot be read, as it was last."""
        try:
            return job_table(self.status(), now())
        except TrainmasterError:
            return self._job.html()

    def status(self) -> JobStatus:
        """Reads the state of the job, with its replicas and the last lines of their output."""
        return self._loop.run(self._job.status())

    def wait(self, timeout: float | None = None, *, check: bool = True) -> JobStatus:
        """Waits until the job has ended. Raises ``TimedOut`` after ``timeout`` seconds, and the job goes on. With
        ``check``, a job that did not succeed is a ``JobFailed``, which has the story of ``why``."""
        return self._loop.run(self._job.wait(timeout, check=check))

    def logs(
        self, *, follow: bool = False, role: str = "", tail: int | None = None, previous: bool = False
    ) -> Iterator[LogLine]:
        """The output of all replicas, or of those of a role. ``follow`` waits for pods and for lines until the job has
        ended; ``tail`` is the number of last lines of each replica; ``previous`` means the run before the last
        restart of a container in its pod."""
        batches = self._job.log_batches(follow=follow, role=role, tail=tail, previous=previous)
        try:
            while batch := self._loop.run(_next(batches)):
                yield from batch
        finally:
            self._loop.end(_close(batches))

    def why(self) -> str:
        """Why the job waits, restarts or has failed, in at most ten lines, and what to type."""
        return self._loop.run(self._job.why())

    def scale(self, replicas: int, role: str = "") -> None:
        """Changes the number of replicas of a role. A job with several roles needs its name."""
        self._loop.run(self._job.scale(replicas, role))

    def suspend(self) -> None:
        """Stops the job: its pods are deleted until it is resumed."""
        self._loop.run(self._job.suspend())

    def resume(self) -> None:
        self._loop.run(self._job.resume())

    def delete(self) -> None:
        """Deletes the job and its pods. One that is deleted already is not an error."""
        self._loop.run(self._job.delete())


class JobList(list[JobHandle]):
    """Jobs; a table in a notebook."""

    def __init__(self, loop: Background, jobs: AsyncJobList) -> None:
        super().__init__(JobHandle(loop, job) for job in jobs)
        self._loop = loop
        self._jobs = jobs

    def _repr_html_(self) -> str:
        """As they are now, if they can be read. The output of the first jobs is read, too."""
        with suppress(TrainmasterError):
            self._loop.run(self._jobs.refresh())
        return self._jobs.html()


class Client:
    """Submits jobs and follows them, on this machine or on a cluster.

    >>> with Client() as client:
    ...     job = client.submit(Job("hello", command=["echo", "hello"]))
    ...     for line in job.logs(follow=True):
    ...         print(line)
    ...     job.wait(timeout=60).phase
    worker-0 | hello
    'Succeed'

    Without arguments it uses the local cluster of ``trainmaster up``, if that runs, and starts one in this process
    otherwise, which ends with the client: at the end of the ``with`` block, by ``close()``, or with the interpreter.
    """

    def __init__(
        self, *, context: str = "", kubeconfig: File = "", state: File | None = None, namespace: str = ""
    ) -> None:
        """``context`` and ``kubeconfig`` name a cluster. ``state`` is the state folder of a local cluster, which keeps
        its objects there. ``namespace`` is that of jobs without one."""
        self._client = AsyncClient(context=context, kubeconfig=kubeconfig, state=state, namespace=namespace)
        self._loop = Background()
        self._at_exit = close_at_exit(self.close)

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._client.open())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the local cluster that this client has started, and all its processes: they have 30 seconds. Ctrl-C
        kills them at once."""
        forget(self._at_exit)
        self._loop.close(self._client.close(), hurry=self._client.kill)

    @overload
    def submit(self, job: Job | Manifest, *, unique: bool = False) -> JobHandle: ...
    @overload
    def submit(self, job: File, *, unique: bool = False) -> JobList: ...
    def submit(self, job: Job | Manifest | File, *, unique: bool = False) -> JobHandle | JobList:
        """Creates a job: a ``Job``, a manifest as a dict, or the path of a file with manifests, which returns a list.
        ``unique`` adds a random suffix to its name. Raises ``Refused`` if it is not accepted."""
        jobs, texts = self._loop.run(self._client.create(job, unique=unique))
        for text in texts:
            warnings.warn(text, stacklevel=2)
        created = JobList(self._loop, jobs)
        return created[0] if isinstance(job, Job | Mapping) else created

    def jobs(self) -> JobList:
        """All jobs, or those of the client's namespace if it has one."""
        return JobList(self._loop, self._loop.run(self._client.jobs()))

    def job(self, name: str) -> JobHandle:
        """The job NAME, KIND/NAME or NAMESPACE/NAME. Raises ``JobNotFound``."""
        return JobHandle(self._loop, self._loop.run(self._client.job(name)))


async def _next(batches: AsyncGenerator[list[LogLine]]) -> list[LogLine]:
    """Empty at the end."""
    return await anext(batches, [])


async def _close(batches: AsyncGenerator[list[LogLine]]) -> None:
    with suppress(RuntimeError):  # Ctrl-C has cancelled it, and it is ending
        await batches.aclose()
