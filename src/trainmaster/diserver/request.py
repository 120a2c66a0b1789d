"""Decodes and validates requests before anything is looked up. Errors are answered with 400 and a message."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, NoReturn, TypeVar

import msgspec

from trainmaster.core.ids import Key
from trainmaster.core.quantity import amount_of, rounded_up
from trainmaster.diserver.refusal import Refused
from trainmaster.diserver.types import FailedRequest, Quantity, ReplicasRequest, ScaleRequest, Wanted
from trainmaster.kinds.dijob.declaration import MAX_GPUS, Role
from trainmaster.kinds.dijob.declare import COLLECTOR, LEARNER, Asked

BODY_LIMIT = 64 * 1024

PARAMETERS = ("namespace", "coordinator", "name", "aggregator")

R = TypeVar("R", ReplicasRequest, FailedRequest, ScaleRequest)

T = TypeVar("T")

MAX_DEPTH = 32
"""Of the objects and lists of a report."""


def decoded(body: bytes, type_: type[R]) -> R:
    return _decoded(body, type_)


def profilings_of(body: bytes) -> bytes:
    """The body, if it is a JSON object that can be stored."""
    if not _is_flat(_decoded(body, dict[str, Any]), MAX_DEPTH):
        raise Refused(400, f"failed to decode request body: it is nested deeper than {MAX_DEPTH} levels")
    return body


def job_id(text: str) -> Key:
    """``namespace.name``, or ``namespace/name`` as in DI_JOB_ID."""
    return _key(text) or _refuse_id(text, "namespace.name")


def generation_id(text: str) -> Key:
    """``namespace.name.generation``. The generation is not compared, and may be missing: DI-orchestrator's page has it,
    its code does not."""
    pair, _, last = text.rpartition(".")
    is_triple = last.isdecimal() and "." in pair
    return _key(pair if is_triple else text) or _refuse_id(text, "namespace.name.generation")


def _key(text: str) -> Key | None:
    """A namespace has no dots."""
    namespace, _, name = text.partition("/") if "/" in text else text.partition(".")
    if not namespace or not name or "." in namespace or "/" in name:
        return None
    return Key(namespace, name)


def _refuse_id(text: str, form: str) -> NoReturn:
    raise Refused(400, f"job id {text[:300]} must be in {form} format")


def _decoded(body: bytes, type_: type[T]) -> T:
    """Raises ``Refused`` with the messages of the ancestor."""
    if not body.strip():
        raise Refused(400, "failed to decode request body: EOF")
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"failed to decode request body: {error}") from error


def _is_flat(value: object, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_flat(each, depth - 1) for each in inner)


def coordinator_of(request: ReplicasRequest | FailedRequest) -> Key:
    return Key(request.namespace or "", request.coordinator or "")


def parameters(query: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Names are case-insensitive; the first of several values counts."""
    values: dict[str, str] = {}
    for name, value in query:
        if name.lower() not in PARAMETERS:
            raise Refused(400, f"request param {name} is not supported; there are {', '.join(PARAMETERS)}")
        values.setdefault(name.lower(), value)
    return values


def wanted_of(request: ReplicasRequest) -> dict[Role, Wanted]:
    """By role, without the roles that the body does not have."""
    by_role: dict[Role, Wanted | None] = {COLLECTOR: request.collectors, LEARNER: request.learners}
    return {role: wanted for role, wanted in by_role.items() if wanted is not None}


def number_of(role: Role, wanted: Wanted) -> int:
    number = wanted.replicas or 0
    if number < 0:
        raise Refused(400, f"{role}s.replicas is {number}: it must be 0 or more; use DELETE to have fewer")
    return number


def difference_of(request: ScaleRequest) -> int:
    if request.replicas is None:
        raise Refused(400, "failed to decode request body: replicas is missing, the number of replicas more or fewer")
    if request.replicas < 0:
        raise Refused(400, f"replicas is {request.replicas}: it must be 0 or more; POST adds and DELETE removes")
    return request.replicas


def asked_of(role: Role, wanted: Wanted) -> Asked:
    """The resources of one replica, validated. Whether a learner becomes a DDP group is decided later."""
    cpus, memory = _quantity(role, "cpus", wanted.cpus), _quantity(role, "memory", wanted.memory)
    gpus = rounded_up(amount_of(_quantity(role, "gpus", wanted.gpus) or "0"))
    if gpus > MAX_GPUS:
        raise Refused(400, f"{role}s.gpus is {gpus}: a replica may have up to {MAX_GPUS}")
    return Asked(number_of(role, wanted), cpus, gpus, memory)


def digest_of(verb: str, request: ReplicasRequest | FailedRequest | ScaleRequest) -> str:
    """Equal for equal requests, independent of their JSON formatting."""
    return sha256(verb.encode() + msgspec.json.encode(request, order="deterministic")).hexdigest()[:16]


def pod_names(entries: Iterable[str], namespace: str) -> tuple[str, ...]:
    """Pods by name, name.namespace or URL, without duplicates."""
    return tuple(dict.fromkeys(_pod_name(entry, namespace) for entry in entries))


def _pod_name(entry: str, namespace: str) -> str:
    host = entry.rpartition("//")[2].partition("/")[0].partition(":")[0]
    name, _, rest = host.partition(".")
    if not name or (rest and rest.partition(".")[0] != namespace):
        raise Refused(404, f"{entry[:300]!r} is no replica of namespace {namespace!r}: write a pod's name, or its URL")
    return name


def _quantity(role: Role, field: str, quantity: Quantity) -> str:
    """Empty if unset or 0: the template decides then."""
    text = "" if quantity is None else str(quantity)
    try:
        return text if text and amount_of(text) else ""
    except ValueError as error:
        raise Refused(400, f"failed to decode request body: {role}s.{field}: {error}") from error
