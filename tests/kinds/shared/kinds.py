"""Two made-up kinds that share one resource with two served versions: a spec has ``template``, or ``task``."""

from typing import Annotated

import msgspec

from tests.kinds.plain.kind import PlainJob, PlainJobKind, PlainJobSpec
from trainmaster.core.ids import Resource
from trainmaster.core.view import JobView
from trainmaster.core.wire import ObjectMeta, Template, Wire
from trainmaster.kinds.base import Settings
from trainmaster.kinds.definition import AGE, PHASE, STATE, Definition, Version
from trainmaster.kinds.kubeflow_status import JobStatus, Writer
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.kinds.schema import Rule

FIRST = Resource("pair.example", "v1alpha1", "pairjobs", "PairJob")
"""As it is stored."""
SECOND = msgspec.structs.replace(FIRST, version="v2alpha1")


class UnionSpec(Wire, frozen=True):
    template: Template | None = None
    replicas: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    task: PlainJobSpec | None = None


class PairJob(Wire, frozen=True):
    """A job of either shape."""

    metadata: ObjectMeta
    spec: UnionSpec
    status: JobStatus = JobStatus()


class FirstKind(PlainJobKind):
    resource = FIRST
    shape = frozenset({"template"})
    writer = Writer("FirstJob")

    @property
    def name(self) -> str:
        return "firstjob"


class SecondKind(PlainJobKind):
    resource = FIRST
    shape = frozenset({"task"})
    writer = Writer("SecondJob")

    @property
    def name(self) -> str:
        return "secondjob"

    def decode(self, view: JobView) -> PlainJob:
        job = msgspec.json.decode(view.raw)
        flat = msgspec.json.encode(job | {"spec": job["spec"]["task"]})
        return super().decode(msgspec.structs.replace(view, raw=flat))


DEFINITION = Definition(
    resource=FIRST,
    job=PairJob,
    columns=(PHASE, AGE),
    other_versions=(Version(SECOND.version, (STATE, AGE)),),
    rules={UnionSpec: (Rule("has(self.template) != has(self.task)", "a job has a template or a task"),)},
)


def pair() -> ResourceKinds:
    settings = Settings()
    return ResourceKinds(FirstKind(settings), SecondKind(settings), versions=[SECOND.version])
