"""Pods and records for the tables of the pure parts."""

from typing import Any

from trainmaster.local.node.pod import Pod, moment_of
from trainmaster.local.node.record import Ended, Record

Object = dict[str, Any]

NOW = 1_800_000_000.0
RUN = ["run"]


def a_container(name: str = "main", **fields: Any) -> Object:
    return {"name": name, "image": "img", "command": RUN, **fields}


def a_pod(*containers: Object, status: Object | None = None, metadata: Object | None = None, **spec: Any) -> Pod:
    meta = {"namespace": "ns", "name": "pod", "uid": "uid-1", "resourceVersion": "5", **(metadata or {})}
    body = {"metadata": meta, "spec": {"containers": list(containers or [a_container()]), **spec}}
    return Pod({**body, "status": status or {"phase": "Pending", "qosClass": "BestEffort"}})


def moment(seconds: float) -> str:
    """A time as the shim writes it, relative to now."""
    return moment_of(NOW + seconds)[:-1] + ".000000000Z"


def ended(code: int = 0, *, ago: float = 0.0, ran: float = 1.0, reason: str = "", message: str = "") -> Ended:
    word = reason or ("Completed" if code == 0 else "Error")
    return Ended(code, word, moment(-ago - ran), moment(-ago), message)


def running(name: str = "main", *, attempt: int = 0, ready: bool = True, **fields: Any) -> Record:
    return Record(name, attempt, moment(-5), is_ready=ready, has_started=fields.pop("has_started", True), **fields)


def over(name: str = "main", code: int = 0, *, attempt: int = 0, streak: int = 1, ago: float = 0.0) -> Record:
    end = ended(code, ago=ago)
    return Record(name, attempt, end.started_at, ended=end, streak=streak)


def records(*found: Record) -> dict[str, Record]:
    return {record.name: record for record in found}
