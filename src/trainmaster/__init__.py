"""Distributed training jobs as Kubernetes custom resources; design and layers are in docs/.

The Python API is ``Client``, or ``AsyncClient`` for programs with an event loop, and ``Job``; docs/client.md describes
it. It is imported when it is used first: it loads the HTTP stack, and other parts of the package do not need it.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, whose import takes most of the time of this one
if TYPE_CHECKING:
    from trainmaster.client.async_client import AsyncClient, AsyncJobHandle, AsyncJobList, LogLine
    from trainmaster.client.errors import (
        ApiError,
        BadConfig,
        JobFailed,
        JobNotFound,
        Refused,
        TimedOut,
        TrainmasterError,
        Unreachable,
    )
    from trainmaster.client.job import Job
    from trainmaster.client.status import JobStatus
    from trainmaster.client.sync_client import Client, JobHandle, JobList

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncJobHandle",
    "AsyncJobList",
    "BadConfig",
    "Client",
    "Job",
    "JobFailed",
    "JobHandle",
    "JobList",
    "JobNotFound",
    "JobStatus",
    "LogLine",
    "Refused",
    "TimedOut",
    "TrainmasterError",
    "Unreachable",
]

_MODULES = {
    "async_client": ("AsyncClient", "AsyncJobHandle", "AsyncJobList", "LogLine"),
    "job": ("Job",),
    "status": ("JobStatus",),
    "sync_client": ("Client", "JobHandle", "JobList"),
}


if not TYPE_CHECKING:  # for type checkers only the names above exist

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = next((module for module, names in _MODULES.items() if name in names), "errors")
        return getattr(import_module(f"trainmaster.client.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
