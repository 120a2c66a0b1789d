"""Which ports the replicas of a job listen on when they share a network with other programs.

A pod has an address of its own and may use any port, unless it is on the network of its machine: with
``hostNetwork``, and always in local mode. What is given to a replica is stored in the job's status before its pod is
created, and never changes until the job has ended.

A port can be had once on each machine. In local mode there is one machine. On a cluster the scheduler puts pods with
the same host port on different nodes, so a job prefers ports that no other job has, and shares them if none is left:
jobs never have to wait for the ports of other jobs. A quota limits what one job and one namespace have.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from zlib import crc32

import msgspec

from trainmaster.lifecycle import reason

FIRST, LAST = 20_000, 29_999
"""Below the ports that Kubernetes gives to services of type NodePort (from 30000) and those that Linux gives to
clients (from 32768): both would be met at random."""

RETRY_SECONDS = 30.0
"""Until a job that found no free port retries: the end of another job does not enqueue it."""

Wanted = Mapping[str, Sequence[int | range]]
"""By replica, the ports that its template declares. The ports that are given for a range follow each other, too; it is
given as a whole, so its first port identifies it."""
Ports = Mapping[str, Mapping[str, int]]
"""By replica, and by the port that its template declares: the port that it has."""


class PortRules(msgspec.Struct, frozen=True):
    per_job: int
    """The largest number of ports that a job may have."""
    per_namespace: int
    """The largest number of ports that the jobs of a namespace may have together."""
    is_one_machine: bool = False
    """True where no two jobs may have the same port."""


class PortError(msgspec.Struct, frozen=True):
    reason: str
    message: str


class Allotment(msgspec.Struct, frozen=True):
    """``ports`` are all ports of the job, ``drawn`` the newly assigned ones. After an ``error`` the ports are
    unchanged."""

    ports: Ports
    is_stored: bool = True
    drawn: tuple[int, ...] = ()
    error: PortError | None = None

    @property
    def is_new(self) -> bool:
        """True when it has to be stored before anything else."""
        return not self.is_stored and not self.error

    @property
    def retry_after(self) -> float | None:
        return RETRY_SECONDS if self.error else None


NOTHING = Allotment({})


def is_complete(wanted: Wanted, stored: Ports) -> bool:
    return next(_missing(wanted, stored), None) is None


def allot(
    wanted: Wanted,
    stored: Ports,
    *,
    rules: PortRules,
    used: Mapping[str, Container[int]],
    taken: Container[int],
    declared: frozenset[int],
    namespace_ports: int,
    uid: str,
) -> Allotment:
    """A port for every declared one that has none yet, or none at all: pods are created with the ports of their peers.

    ``taken`` are the ports of other jobs, and ``namespace_ports`` is the number of ports that other jobs of the
    namespace have. The ``declared`` ports of the job's templates are never given to one of its replicas. A pod that
    listens on the declared port already (``used``, by replica) keeps it: it was created with no other.
    The search begins at a place that depends on the job's uid, so that jobs rarely have the same port.
    """
    kept = _fitting(wanted, stored, rules.per_job)
    if error := _over_quota(_number(wanted, kept), namespace_ports, rules):
        return Allotment(stored, is_stored=False, error=error)
    start = crc32(uid.encode())
    own = {*declared, *(number for given in kept.values() for number in given.values())}
    free = (number for number in _numbers(start) if number not in own and number not in taken)
    shared = (number for number in _numbers(start) if number not in own and not rules.is_one_machine)
    ports = {slot: dict(given) for slot, given in kept.items()}
    drawn: list[int] = []
    for slot, row in _missing(wanted, kept):
        numbers: Sequence[int] = row
        if row.start not in used.get(slot, ()):
            numbers = _next_row(free, len(row)) or _next_row(shared, len(row))
            own.update(numbers)
            drawn += numbers
        if not numbers:
            return Allotment(stored, is_stored=False, error=_exhausted(slot, row))
        ports.setdefault(slot, {}).update(zip(map(str, row), numbers, strict=True))
    return Allotment(ports, is_stored=False, drawn=tuple(drawn))


def _fitting(wanted: Wanted, stored: Ports, limit: int) -> Ports:
    """Replicas that were removed keep their ports for their return, unless these make the job exceed its quota."""
    if _number(wanted, stored) <= limit:
        return stored
    return {slot: given for slot, given in stored.items() if slot in wanted}


def _number(wanted: Wanted, stored: Ports) -> int:
    """How many ports the job has when it has all that it wants."""
    return sum(map(len, stored.values())) + sum(len(row) for _, row in _missing(wanted, stored))


def _over_quota(number: int, others: int, rules: PortRules) -> PortError | None:
    if number > rules.per_job:
        return PortError(
            reason.PORT_QUOTA_EXCEEDED,
            f"the job needs {number} host ports, and a job may have {rules.per_job} (--max-host-ports-per-job): "
            "use fewer replicas or ports, or pods without hostNetwork",
        )
    if number + others > rules.per_namespace:
        return PortError(
            reason.PORT_QUOTA_EXCEEDED,
            f"the job needs {number} host ports, other jobs of its namespace have {others}, and a namespace may have "
            f"{rules.per_namespace} (--max-host-ports-per-namespace): end or delete other jobs; "
            f"looking again every {RETRY_SECONDS:.0f} seconds",
        )
    return None


def _missing(wanted: Wanted, stored: Ports) -> Iterator[tuple[str, range]]:
    return ((slot, row) for slot, row in _rows(wanted) if str(row.start) not in stored.get(slot, ()))


def _rows(wanted: Wanted) -> Iterator[tuple[str, range]]:
    for slot, declared in wanted.items():
        for port in declared:
            yield slot, range(port, port + 1) if isinstance(port, int) else port


def _next_row(free: Iterator[int], length: int) -> Sequence[int]:
    """So many that follow each other; empty when there are none left."""
    found: list[int] = []
    for number in free:
        found = [*found, number] if found and number == found[-1] + 1 else [number]
        if len(found) == length:
            return found
    return ()


def _numbers(start: int) -> Iterator[int]:
    size = LAST - FIRST + 1
    return (FIRST + (start + step) % size for step in range(size))


def _exhausted(slot: str, row: range) -> PortError:
    lacking = "no port" if len(row) == 1 else f"no row of {len(row)} ports"
    return PortError(
        reason.NO_FREE_PORT,
        f"{lacking} between {FIRST} and {LAST} is free for port {row.start} of {slot}; "
        f"looking again every {RETRY_SECONDS:.0f} seconds: end other jobs that use the network of their machine",
    )
