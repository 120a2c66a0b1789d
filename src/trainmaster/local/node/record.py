"""What is known of a container: how its newest attempt is, and how the one before ended."""

import msgspec


class Ended(msgspec.Struct, frozen=True, rename="camel"):
    """The shim's last words (``exit.json``)."""

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
    """The number of the newest attempt, from 0; -1 when there was none. It is the restart count, too."""
    started_at: str = ""
    """Empty while there was no attempt, or the newest could not be started."""
    ended: Ended | None = None
    previous: Ended | None = None
    waiting: Waiting | None = None
    retry_at: float = 0.0
    """When a container that waits may be tried again."""
    streak: int = 0
    """How many attempts in a row ended soon after their start, the newest included."""
    is_ready: bool = False
    has_started: bool = False
    """The startup probe, if there is one, has passed."""

    @property
    def is_running(self) -> bool:
        return bool(self.started_at) and self.ended is None
