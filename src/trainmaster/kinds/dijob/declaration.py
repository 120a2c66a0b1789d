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
    """The role of the replica. A learner with several GPUs is an aggregator with ddp-learners."""
    at: datetime
    """When the replica was requested, or replaced."""
    cpus: Amount = ""
    """The CPUs that were requested for the pod. Empty: as in the template."""
    gpus: Gpus = 0
    """The GPUs that were requested for the pod."""
    memory: Amount = ""
    """The memory that was requested for the pod. Empty: as in the template."""
    attempt: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    """How often the replica was replaced in a row, which the back-off depends on."""
    aggregator: PodName = ""
    """The aggregator that a ddp-learner belongs to."""
    world_size: Gpus = 0
    """The number of processes in the DDP group."""
    start_rank: Gpus = 0
    """The rank of the first process of this pod in the DDP group."""
    master: PodName = ""
    """The pod of the DDP group that has rank 0. Empty in that pod itself."""
    formed: bool = False
    """Of an aggregator: its DDP group has had all of its pods. With the restart scope All, of any other replica: its
    pod has run. A pod that is missing from then on was lost."""
    restarts: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    """How often the kubelet restarted its container, as far as Events have reported it."""


Members = Annotated[
    dict[str, Member],
    # Merge patches change single members all the same. Field by field the managed fields are longer than the members.
    msgspec.Meta(extra={"openapi": {"maxProperties": MAX_MEMBERS, "x-kubernetes-map-type": "atomic"}}),
]


class LastRequest(Wire, frozen=True):
    """The last change, by which a client that lost the answer and asks again is recognised."""

    id: str
    """The id of the request, chosen by di-server."""
    digest: str
    """A digest of the content of the request."""
    at: datetime
    """When the request was stored."""
    incarnation: str = ""
    """The pod of the coordinator that sent the request, and how often its container was restarted."""
    collectors: tuple[str, ...] = ()
    """The collectors in the response."""
    learners: tuple[str, ...] = ()
    """The learners in the response."""
    answered: bool = False
    """True: the client has received the response."""


class Aggregator(Wire, frozen=True):
    """What answers say of a job's aggregators. The port does not change any more once it is here, whatever becomes of
    the AggregatorConfig."""

    port: Port
    """The port on which the aggregators of the job listen. It does not change when the AggregatorConfig does."""
    host_network: bool = False
    """True: the aggregators have the network of their nodes."""


class Declared(Wire, frozen=True):
    """The replicas that were asked for, by pod name, and which incarnation of the coordinator stated how many."""

    members: Members = {}
    """The requested replicas, by the name of their pod. The operator creates a pod and a service for each."""
    incarnations: dict[str, str] = {}
    """By role: the coordinator's pod that stated how many replicas the job has. Its later requests add to them."""
    last: LastRequest | None = None
    """The last request, by which the same request is recognised when its response got lost."""
    aggregator: Aggregator | None = None
    """What di-server tells clients about the aggregators of the job."""
    aggregator_template: Template | None = None
    """Of earlier releases, in the place of ``aggregator``. No pod is created from it."""

    def with_last(self, last: LastRequest) -> "Declared":
        return msgspec.structs.replace(self, last=last)
