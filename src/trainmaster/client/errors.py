"""The exceptions of the Python API. They are part of the tree of ``core/errors.py``.

TrainmasterError            base of all exceptions that trainmaster raises
├── BadConfig               the cluster cannot be used: no such context, a kubeconfig that cannot be read, …
│   ├── Refused             a job or a change that is not accepted; it names each wrong field
│   └── JobNotFound         there is no such job, or it was deleted
├── JobFailed               ``wait`` of a job that did not succeed, with its story
├── TimedOut                the time is over; also a ``TimeoutError``
├── Unreachable             the API server does not answer
└── ApiError                the API server refused a request; among others ``Forbidden``
"""

from typing import TYPE_CHECKING

from trainmaster.core.errors import ApiError, BadConfig, Unreachable
from trainmaster.core.errors import Trainmaster as TrainmasterError

if TYPE_CHECKING:
    from trainmaster.client.status import JobStatus

__all__ = [
    "ApiError",
    "BadConfig",
    "JobFailed",
    "JobNotFound",
    "Refused",
    "TimedOut",
    "TrainmasterError",
    "Unreachable",
]


class Refused(BadConfig): ...


class JobNotFound(BadConfig): ...


class JobFailed(TrainmasterError):
    """``str()`` of it is the story, as ``job.why()`` returns it."""

    def __init__(self, story: str, status: "JobStatus") -> None:
        super().__init__(story)
        self.story = story
        self.status = status


class TimedOut(TrainmasterError, TimeoutError): ...
