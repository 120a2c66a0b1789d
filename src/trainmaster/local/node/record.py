"""The state of a container: its newest attempt, and the end of the one before."""

import msgspec


class Ended(msgspec.Struct, frozen=True, rename="camel"):
    """How an attempt ended, as the shim writes it (``exit.json``)."""

    exit_code: int
    reason: str
    started_at: str
    finished_at: str
    message: str = ""
    signal: int = 0


class Waiting(msgspec.Struct, frozen=True):
    """Why a container cannot be started now."""

    reason: str
    message: str


class Record(msgspec.Struct, frozen=True):
    name: str
    attempt: int = -1
    """The number of the newest attempt, from 0; -1 if there was none. It is also the restart count."""
    started_at: str = ""
    """Empty if there was no attempt or the newest one could not be started."""
    ended: Ended | None = None
    previous: Ended | None = None
    waiting: Waiting | None = None
    retry_at: float = 0.0
    """When a waiting container may be tried again."""
    streak: int = 0
    """Consecutive attempts that ended soon after their start, including the newest."""
    is_ready: bool = False
    has_started: bool = False
    """The startup probe has passed, or there is none."""

    @property
    def is_running(self) -> bool:
        return bool(self.started_at) and self.ended is None
