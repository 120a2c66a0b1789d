"""The places in a job that pods fill."""

from collections.abc import Mapping

import msgspec


class Slot(msgspec.Struct, frozen=True):
    """A replica, and the name of the pod and the service that fill it."""

    role: str
    index: int
    name: str
    key: str = ""
    """What a status calls the slot, where that is not its role and index."""

    @property
    def label(self) -> str:
        """What messages call the slot."""
        return self.name if self.key else place_of(self.role, self.index)

    @property
    def place(self) -> str:
        return self.key or place_of(self.role, self.index)


def slot_of(job: str, role: str, index: int) -> Slot:
    """A replica whose pod has the usual name: <job>-<role>-<index>."""
    return Slot(role, index, f"{job}-{place_of(role, index)}")


def numbered(job: str, replicas: Mapping[str, int]) -> tuple[Slot, ...]:
    """So many replicas of each role, with the usual names."""
    prefixes = [(role, f"{job}-{role.lower()}-", number) for role, number in replicas.items()]
    return tuple(
        [Slot(role, index, f"{prefix}{index}") for role, prefix, number in prefixes for index in range(number)]
    )


def place_of(role: str, index: int) -> str:
    """What a status calls a slot: the name of its pod without that of the job."""
    return f"{role.lower()}-{index}"
