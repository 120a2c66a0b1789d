"""Which ports the replicas of a job listen on when they share a network with other programs.

A pod has an address of its own and may use any port, unless it is on the network of its machine: with
``hostNetwork``, and always in local mode. There every port can be had once. What is given to a replica is stored
in the job's status before its pod is created, and never changes until the job has ended.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from zlib import crc32

import msgspec

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


class Allotment(msgspec.Struct, frozen=True):
    """``ports`` are all ports of the job, ``drawn`` the newly assigned ones. After an ``error`` the ports are
    unchanged."""

    ports: Ports
    is_stored: bool = True
    drawn: tuple[int, ...] = ()
    error: str = ""

    @property
    def is_new(self) -> bool:
        """True when it has to be stored before anything else."""
        return not self.is_stored and not self.error

    @property
    def retry_after(self) -> float | None:
        return RETRY_SECONDS if self.error else None


NOTHING = Allotment({})


def is_complete(wanted: Wanted, stored: Ports) -> bool:
    return all(str(row.start) in stored.get(slot, ()) for slot, row in _rows(wanted))


def allot(
    wanted: Wanted,
    stored: Ports,
    *,
    used: Mapping[str, Container[int]],
    taken: Container[int],
    uid: str,
) -> Allotment:
    """A port for every declared one that has none yet.

    A pod that listens on the declared port already (``used``, by replica) keeps it: it was created with no other.
    The search begins at a place that depends on the job's uid, so that operators which do not know of each other
    rarely give the same port twice.
    """
    free = _free(taken, crc32(uid.encode()))
    ports = {slot: dict(given) for slot, given in stored.items()}
    drawn: list[int] = []
    for slot, row in _rows(wanted):
        given = ports.setdefault(slot, {})
        if str(row.start) in given:
            continue
        numbers: Sequence[int] = row
        if row.start not in used.get(slot, ()):
            numbers = _next_row(free, len(row))
            drawn += numbers
        if not numbers:
            return Allotment(stored, is_stored=False, error=_exhausted(slot, row))
        given.update(zip(map(str, row), numbers, strict=True))
    return Allotment(ports, is_stored=False, drawn=tuple(drawn))


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


def _free(taken: Container[int], start: int) -> Iterator[int]:
    size = LAST - FIRST + 1
    numbers = (FIRST + (start + step) % size for step in range(size))
    return (number for number in numbers if number not in taken)


def _exhausted(slot: str, row: range) -> str:
    lacking = "no port" if len(row) == 1 else f"no row of {len(row)} ports"
    return (
        f"{lacking} between {FIRST} and {LAST} is free for port {row.start} of {slot}; "
        f"looking again every {RETRY_SECONDS:.0f} seconds: end other jobs that use the network of their machine"
    )
