"""What di-server was asked for, as the status of a job stores it. Pure, as everything that decides."""

import msgspec

from trainmaster.core.wire import Wire
from trainmaster.kinds.dijob.declaration import LastRequest
from trainmaster.kinds.ditask.role import declared_tasks, tasks_of
from trainmaster.kinds.ditask.types import DITaskJob, RequestedReplicas


class Requests(Wire, frozen=True):
    """The part of the status that di-server writes, under the names that it has there."""

    requested_replicas: dict[str, RequestedReplicas] = {}
    last_request: LastRequest | None = None

    @property
    def last(self) -> LastRequest | None:
        return self.last_request

    def with_last(self, last: LastRequest) -> "Requests":
        return msgspec.structs.replace(self, last_request=last)


class Change(msgspec.Struct, frozen=True):
    """The requests after one more. No pods are named in the answer."""

    declared: Requests
    collectors: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()


def requests_of(job: DITaskJob) -> Requests:
    return Requests(job.status.requested_replicas, job.status.last_request)


def with_requests(job: DITaskJob, requests: Requests) -> DITaskJob:
    return msgspec.structs.replace(
        job,
        status=msgspec.structs.replace(
            job.status, requested_replicas=requests.requested_replicas, last_request=requests.last_request
        ),
    )


def scaled(job: DITaskJob, task: str, replicas: int) -> Requests:
    """The requests after one for so many replicas of a task. The number in the spec is stored with it: a later change
    of that number replaces the request."""
    if tasks_of(job)[task].replicas == replicas:
        return requests_of(job)
    declared = next(number for name, _, number in declared_tasks(job.spec) if name == task)
    request = RequestedReplicas(replicas, declared)
    return Requests({**job.status.requested_replicas, task: request}, job.status.last_request)
