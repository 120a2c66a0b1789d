"""A pod as the node reads it: the API object with accessors."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from trainmaster.core.ids import Key

Object = dict[str, Any]

DEFAULT_GRACE = 30
LOOPBACK = "127.0.0.1"
"""The address of the node, and of every pod without an address of its own: pods share the machine's network."""


class Pod:
    """One version of one pod; immutable."""

    def __init__(self, body: Object) -> None:
        self.body = body
        self.metadata: Object = body["metadata"]
        self.spec: Object = body["spec"]
        self.status: Object = body.get("status") or {}
        self.key = Key(self.metadata["namespace"], self.metadata["name"])
        self.uid: str = self.metadata["uid"]

    @classmethod
    def of(cls, raw: bytes) -> "Pod":
        return cls(msgspec.json.decode(raw))

    @property
    def version(self) -> int:
        return int(self.metadata.get("resourceVersion", "0"))

    @property
    def containers(self) -> list[Object]:
        containers: list[Object] = self.spec["containers"]
        return containers

    @property
    def init_containers(self) -> list[Object]:
        return self.spec.get("initContainers") or []

    @property
    def volumes(self) -> dict[str, Object]:
        return {volume["name"]: volume for volume in self.spec.get("volumes") or ()}

    @property
    def restart_policy(self) -> str:
        policy: str = self.spec.get("restartPolicy", "Always")
        return policy

    @property
    def hostname(self) -> str:
        hostname: str = self.spec.get("hostname") or self.key.name
        return hostname[:63].rstrip("-.")

    @property
    def phase(self) -> str:
        phase: str = self.status.get("phase", "")
        return phase

    @property
    def is_ended(self) -> bool:
        """Terminal phases are final: no container of such a pod is started again."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_deleting(self) -> bool:
        return "deletionTimestamp" in self.metadata

    @property
    def grace(self) -> int:
        """Seconds between SIGTERM and SIGKILL."""
        grace = self.metadata.get("deletionGracePeriodSeconds")
        if grace is None:
            grace = self.spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)
        return int(grace)

    @property
    def end_at(self) -> float | None:
        """The end of activeDeadlineSeconds, which count from the status' start time."""
        seconds, start = self.spec.get("activeDeadlineSeconds"), self.status.get("startTime")
        return seconds_of(start) + float(seconds) if seconds is not None and start else None


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """An init container that continues to run beside the others."""
    return container.get("restartPolicy") == "Always"


def seconds_of(moment: str) -> float:
    """Seconds since 1970 of an API time, with or without a fraction."""
    return datetime.fromisoformat(moment[:19] + "+00:00").timestamp()


def moment_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
