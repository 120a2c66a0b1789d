"""Request and response bodies, as DI-engine's client writes and reads them."""

from typing import Any

import msgspec

Quantity = str | int | float | None


class Wanted(msgspec.Struct, frozen=True):
    """Number of replicas of a role, and the resources of each. Unset resources are those of the template."""

    replicas: int | None = None
    cpus: Quantity = None
    gpus: Quantity = None
    memory: Quantity = None


class ReplicasRequest(msgspec.Struct, frozen=True):
    """Body of POST and DELETE. Roles that are left out do not change."""

    namespace: str | None = None
    coordinator: str | None = None
    collectors: Wanted | None = None
    learners: Wanted | None = None


class FailedRequest(msgspec.Struct, frozen=True):
    """Replicas that cannot be reached, by pod name, name.namespace or URL."""

    namespace: str | None = None
    coordinator: str | None = None
    collectors: tuple[str, ...] | None = None
    learners: tuple[str, ...] | None = None


class ScaleRequest(msgspec.Struct, frozen=True):
    """Body of POST and DELETE of v2alpha1: so many replicas of a task more, or fewer."""

    replicas: int | None = None
    task: str | None = None


class Replicas(msgspec.Struct, frozen=True):
    """URLs ``<pod>.<namespace>:<port>``. The client iterates over the lists without a check: they are never null."""

    namespace: str = ""
    coordinator: str = ""
    collectors: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()


class Envelope(msgspec.Struct, frozen=True):
    """Every response body; ``code`` is 0 for success and 1 otherwise."""

    success: bool
    code: int
    message: str
    data: Any = None
