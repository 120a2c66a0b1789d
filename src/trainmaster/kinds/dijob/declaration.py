"""What a DIJob's coordinator asked di-server for: the part of the job's status that di-server writes.

The server declares, the operator creates (docs/decisions/0007, 0015). Names are reserved here before a pod of that
name exists. Everything is a map, so that two writers of different entries merge.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from trainmaster.core.name import MAX_LABEL
from trainmaster.core.quantity import MAX_LENGTH
from trainmaster.core.template import Port
from trainmaster.core.wire import Template, Wire

Role = Literal["collector", "learner", "aggregator", "ddp-learner"]

MAX_MEMBERS = 2000
"""Replicas that a coordinator may ask for. All of them are in the status, which every change reads and writes."""
MAX_GPUS = 1024
"""GPUs of one learner: each of its processes has a port of its own."""

Amount = Annotated[str, msgspec.Meta(max_length=MAX_LENGTH)]
PodName = Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
Gpus = Annotated[int, msgspec.Meta(ge=0, le=MAX_GPUS)]


class Member(Wire, frozen=True):
    """A replica that is wanted: the operator keeps a pod and a service of its name."""

    role: Role
    at: datetime
    cpus: Amount = ""
    gpus: Gpus = 0
    memory: Amount = ""
    attempt: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    aggregator: PodName = ""
    world_size: Gpus = 0
    start_rank: Gpus = 0
    master: PodName = ""
    formed: bool = False
    """Of an aggregator: its DDP group has had all of its pods. With the restart scope All, of any other replica: its
    pod has run. A pod that is missing from then on was lost."""
    restarts: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    """How often its container was restarted in place, as far as Events have reported it."""


Members = Annotated[
    dict[str, Member],
    # Merge patches change single members all the same. Field by field the managed fields are longer than the members.
    msgspec.Meta(extra={"openapi": {"maxProperties": MAX_MEMBERS, "x-kubernetes-map-type": "atomic"}}),
]


class LastRequest(Wire, frozen=True):
    """The last change, by which a client that lost the answer and asks again is recognised."""

    id: str
    digest: str
    at: datetime
    incarnation: str = ""
    collectors: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    answered: bool = False


class Aggregator(Wire, frozen=True):
    """What answers say of a job's aggregators. The port does not change any more once it is here, whatever becomes of
    the AggregatorConfig."""

    port: Port
    host_network: bool = False


class Declared(Wire, frozen=True):
    """The replicas that were asked for, by pod name, and which incarnation of the coordinator stated how many."""

    members: Members = {}
    incarnations: dict[str, str] = {}
    last: LastRequest | None = None
    aggregator: Aggregator | None = None
    aggregator_template: Template | None = None
    """In the place of ``aggregator`` in jobs of earlier releases. No pod is created from it: who may write a status may
    not say which pods are created."""

    def with_last(self, last: LastRequest) -> "Declared":
        return msgspec.structs.replace(self, last=last)
