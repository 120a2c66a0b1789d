"""The bodies of di-server's requests and answers, as DI-engine's client writes and reads them."""

from typing import Any

import msgspec

Quantity = str | int | float | None


class Wanted(msgspec.Struct, frozen=True):
    """How many replicas of a role, and what each of them gets; nothing is what the template says."""

    replicas: int | None = None
    cpus: Quantity = None
    gpus: Quantity = None
    memory: Quantity = None


class ReplicasRequest(msgspec.Struct, frozen=True):
    """Of POST and DELETE. A role that is left out is not spoken about."""

    namespace: str | None = None
    coordinator: str | None = None
    collectors: Wanted | None = None
    learners: Wanted | None = None


class FailedRequest(msgspec.Struct, frozen=True):
    """Replicas that cannot be reached: a pod's name, name.namespace, or a URL of ours."""

    namespace: str | None = None
    coordinator: str | None = None
    collectors: tuple[str, ...] | None = None
    learners: tuple[str, ...] | None = None


class Replicas(msgspec.Struct, frozen=True):
    """URLs ``<pod>.<namespace>:<port>``. The client iterates over the lists without looking: they are never null."""

    namespace: str = ""
    coordinator: str = ""
    collectors: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()


class Envelope(msgspec.Struct, frozen=True):
    """Around every answer; ``code`` is 0 for success and 1 otherwise."""

    success: bool
    code: int
    message: str
    data: Any = None
