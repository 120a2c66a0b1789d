"""Jobs as di-server knows them: of two shapes, each at one version."""

from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from trainmaster.core.ids import Key
from trainmaster.core.plan import Body, merge_patch
from trainmaster.core.view import JobView
from trainmaster.diserver.refusal import Refused
from trainmaster.diserver.view import CallerPod
from trainmaster.kinds.base import spec_fields
from trainmaster.kinds.dijob.declaration import Declared
from trainmaster.kinds.dijob.profile import DI, PROFILES, Profile, profile_of, type_of
from trainmaster.kinds.dijob.status import ENDED
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.kinds.ditask import labels as task_labels
from trainmaster.kinds.ditask.kind import DITaskKind
from trainmaster.kinds.ditask.request import Requests, requests_of, with_requests
from trainmaster.kinds.ditask.role import replicas_of
from trainmaster.kinds.ditask.types import DITaskJob


class JobId(NamedTuple):
    """Profile and key of a job: jobs of two kinds may have the same name."""

    profile: Profile
    key: Key

    def __str__(self) -> str:
        return f"{self.profile.word} {self.key}"


class KnownJob(msgspec.Struct):
    """A job at one version, decoded once. ``answer`` is the cached answer of a GET."""

    view: JobView
    job: Any
    answer: bytes = b""

    @property
    def profile(self) -> Profile:
        raise NotImplementedError

    @property
    def selector(self) -> str:
        """Of the pods of the job."""
        raise NotImplementedError

    @property
    def replicas(self) -> int:
        """That count for the limit of a namespace."""
        raise NotImplementedError

    @property
    def requests(self) -> Any:
        """What was requested through di-server; ``last`` is the last request."""
        raise NotImplementedError

    def patch(self, requests: Any) -> Body:
        """Of the status, so that it has these requests."""
        raise NotImplementedError

    def written(self, requests: Any, version: int) -> Self:
        """The job after the patch."""
        raise NotImplementedError

    @property
    def id(self) -> JobId:
        return JobId(self.profile, self.view.key)

    @property
    def version(self) -> int:
        return self.view.resource_version

    @property
    def phase(self) -> str:
        phase: str = self.job.status.phase
        return phase

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED

    def owns(self, pod: CallerPod) -> bool:
        """Compares the namespace, too: a user can write the uid of a job in another namespace into their own pod."""
        is_named = pod.owner is not None and pod.owner.uid == self.view.uid
        return is_named and pod.key.namespace == self.view.key.namespace


class CoordinatorJob(KnownJob):
    """A DIJob of v1alpha1, or a NerveXJob: its coordinator requests replicas."""

    job: DIJob

    @property
    def profile(self) -> Profile:
        return profile_of(self.job)

    @property
    def selector(self) -> str:
        return f"{self.profile.job_name}={self.view.key.name}"

    @property
    def replicas(self) -> int:
        return len(self.job.status.declared.members)

    @property
    def requests(self) -> Declared:
        return self.job.status.declared

    def patch(self, requests: Declared) -> Body:
        old, new = (msgspec.to_builtins(each) for each in (self.requests, requests))
        return {"declared": merge_patch(old, new)}

    def written(self, requests: Declared, version: int) -> Self:
        status = msgspec.structs.replace(self.job.status, declared=requests)
        return type(self)(_at(self.view, version), msgspec.structs.replace(self.job, status=status))


class TaskJob(KnownJob):
    """A DIJob of v2alpha1: its tasks are scaled."""

    job: DITaskJob

    @property
    def profile(self) -> Profile:
        return DI

    @property
    def selector(self) -> str:
        return f"{task_labels.JOB}={self.view.key.name}"

    @property
    def replicas(self) -> int:
        return replicas_of(self.job)

    @property
    def requests(self) -> Requests:
        return requests_of(self.job)

    def patch(self, requests: Requests) -> Body:
        old, new = (msgspec.to_builtins(each) for each in (self.requests, requests))
        return merge_patch(old, new)

    def written(self, requests: Requests, version: int) -> Self:
        return type(self)(_at(self.view, version), with_requests(self.job, requests))


K = TypeVar("K", bound=KnownJob)


def same(before: K, after: KnownJob) -> K:
    """The job after it was read again; raises ``Refused`` if another one has its name now. A job keeps its shape."""
    if before.view.uid != after.view.uid or not isinstance(after, type(before)):
        raise Refused(404, f"{before.profile.word}: {before.view.key} was deleted; another job has its name now")
    return after


def _at(view: JobView, version: int) -> JobView:
    return msgspec.structs.replace(view, resource_version=version)


_DECODERS = {profile: msgspec.json.Decoder(type_of(profile)) for profile in PROFILES}
_TASK_DECODER = msgspec.json.Decoder(DITaskJob)


def decoded(job: JobId, view: JobView) -> KnownJob:
    """The shape of the spec decides, whatever version the job was written in."""
    if view.error:
        raise unreadable(job, view.error)
    try:
        if job.profile is DI and not DITaskKind.shape.isdisjoint(spec_fields(view.raw)):
            return TaskJob(view, _TASK_DECODER.decode(view.raw))
        return CoordinatorJob(view, _DECODERS[job.profile].decode(view.raw))
    except (ValueError, RecursionError) as error:
        raise unreadable(job, error) from error


def unreadable(job: JobId, why: object) -> Refused:
    return Refused(409, f"{job} cannot be read: {why}")
