"""The view of a pod for its Job."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

FINALIZER = "batch.kubernetes.io/job-tracking"
"""Keeps a pod until its Job has counted it."""

_ENDED = ("Succeeded", "Failed")


class JobPod(NamedTuple):
    """``finished_at`` is the end of its last container, 0.0 if it is unknown."""

    name: str
    uid: str
    phase: str
    is_deleting: bool
    is_tracked: bool
    is_bound: bool
    is_ready: bool
    restarts: int
    created_at: float
    finished_at: float

    @classmethod
    def of(cls, pod: dict[str, Any]) -> "JobPod":
        meta, status = pod["metadata"], pod.get("status", {})
        containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        ends = [(each.get("state") or {}).get("terminated") or {} for each in containers]
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            phase=status.get("phase", ""),
            is_deleting="deletionTimestamp" in meta,
            is_tracked=FINALIZER in meta.get("finalizers", ()),
            is_bound=bool(pod["spec"].get("nodeName")),
            is_ready=any(
                each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions", ())
            ),
            restarts=sum(each.get("restartCount", 0) for each in containers),
            created_at=seconds_of(meta["creationTimestamp"]),
            finished_at=max((seconds_of(end["finishedAt"]) for end in ends if end.get("finishedAt")), default=0.0),
        )

    @property
    def has_ended(self) -> bool:
        return self.phase in _ENDED

    @property
    def is_active(self) -> bool:
        return not self.has_ended and not self.is_deleting

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Pods with a lower rank are deleted first."""
        return self.is_bound, self.phase == "Running", self.is_ready, -self.created_at


def seconds_of(text: str) -> float:
    """Seconds of an API timestamp."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()
