"""What the API server said: an object, or a refusal with its reason. For `plane` and `admin`."""

import json
from typing import Any

Object = dict[str, Any]

# How long a server that warms up is asked again, and how often: as client-go does, but not for other 429s.
WARM_UP_TRIES = 100
WARM_UP_PAUSE = 0.1


class Refused(Exception):
    """The API server answered 4xx or 5xx."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message

    @property
    def is_warming_up(self) -> bool:
        """The server just started, or just got this resource: the same request works in a moment."""
        return self.code == 429 and "storage is (re)initializing" in self.message


def answer_of(code: int, body: bytes) -> Object:
    """The object of an answer; raises Refused when there is none."""
    try:
        found = json.loads(body)
    except ValueError:
        found = {"message": body.decode(errors="replace")[:300]}
    if code < 400 and isinstance(found, dict):
        return found
    status: Object = found if isinstance(found, dict) else {}
    raise Refused(code, str(status.get("reason", "")), str(status.get("message", "")))
