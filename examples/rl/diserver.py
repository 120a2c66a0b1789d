"""di-server, seen from a coordinator or an aggregator: it is asked for replicas, and tells where they are.

It speaks as DI-engine's own client does: JSON without a content type, a body also with GET, an envelope around each
answer. Where it is and who we are says the environment.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from examples.rl.web import Refused, call, split

ANSWER = 10.0  # seconds for one answer
PAUSE = 1.0  # seconds between two attempts
PATIENCE = 120.0  # seconds in which di-server must have done what it was asked for at the start


class Replicas(NamedTuple):
    """Addresses: ``<pod>.<namespace>:<port>``."""

    collectors: list[str]
    learners: list[str]


class NotYet(Exception):
    """di-server understood, but could not do it now."""


class DiServer:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ["KUBERNETES_SERVER_URL"]
        self._namespace = environ["KUBERNETES_POD_NAMESPACE"]
        self._pod = environ["KUBERNETES_POD_NAME"]

    def ask(self, collectors: int, learners: int, *, patience: float = PATIENCE) -> dict[str, Any]:
        """So many replicas for us. Tried again while di-server is away or not ready."""
        deadline = time.monotonic() + patience
        while True:
            try:
                return self._send("POST", "/replicas", _counts(collectors, learners))
            except (OSError, NotYet):
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)

    def remove(self, collectors: int, learners: int) -> dict[str, Any]:
        """So many fewer; the answer says which."""
        return self._send("DELETE", "/replicas", _counts(collectors, learners))

    def report_failed(self, replicas: Replicas) -> dict[str, Any]:
        """These cannot be reached: let others take their place."""
        names = {"collectors": pods(replicas.collectors), "learners": pods(replicas.learners)}
        return self._send("POST", "/replicas/failed", names)

    def replicas(self, of: str = "coordinator") -> Replicas:
        """Who is there for us now; an ``aggregator`` has learners of its own."""
        query = urlencode({"namespace": self._namespace, of: self._pod})
        data = self._open("GET", f"/replicas?{query}", {})
        found = Replicas(list(data.get("collectors") or ()), list(data.get("learners") or ()))
        for address in (*found.collectors, *found.learners):
            split(str(address))
        return found

    def _send(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._open(method, path, {"namespace": self._namespace, "coordinator": self._pod, **body})

    def _open(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = json.loads(call(method, self._address, f"/v1alpha1{path}", json.dumps(body).encode(), timeout=ANSWER))
        if not isinstance(answer, dict) or not isinstance(answer.get("data") or {}, dict):
            raise ValueError(f"{self._address} is no di-server: it answers {str(answer)[:200]}")  # noqa: TRY004 - of a text
        if not answer.get("success"):
            raise NotYet(answer.get("message"))
        return answer.get("data") or {}


TROUBLE = (OSError, Refused, NotYet, ValueError)
"""What may come from di-server while a job runs, and is not the end of it: the next attempt may go better."""


def pods(addresses: Sequence[str]) -> list[str]:
    """The names of the pods that are behind these addresses."""
    return [address.rpartition(":")[0].rpartition(".")[0] for address in addresses]


def _counts(collectors: int, learners: int) -> dict[str, Any]:
    return {"collectors": {"replicas": collectors}, "learners": {"replicas": learners}}
