"""The replicas of one role, as far as they answer. They may be killed, replaced, added and removed at any time."""

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from examples.rl.say import say
from examples.rl.web import Refused, call

HELLO = 2.0  # seconds in which a replica must say that it is there
ANSWER = 30.0  # seconds for a rollout or an update, which take a fraction of one
LOST = 60.0  # seconds after which a replica that does not answer is reported as failed


class Crew:
    def __init__(self, role: str) -> None:
        self._role = role
        self._silent: dict[str, float] = {}  # since when
        self._here: set[str] = set()
        self._changed = threading.Condition()

    def meet(self, listed: Iterable[str]) -> None:
        """Greet those who are new on the list or were lost, and forget those who are not on it any more."""
        known = set(listed)
        with self._changed:
            gone = (self._here | self._silent.keys()) - known
            self._here -= gone
            self._silent = {one: self._silent.get(one, time.monotonic()) for one in known - self._here}
            strangers = sorted(self._silent)
        for one in sorted(gone):
            say(f"{self._role} {one} is removed")
        if not strangers:
            return
        with ThreadPoolExecutor(max_workers=len(strangers)) as pool:
            answers = list(pool.map(self._greets, strangers))
        for one in (one for one, is_there in zip(strangers, answers, strict=True) if is_there):
            with self._changed:
                self._here.add(one)
                self._silent.pop(one, None)
                self._changed.notify_all()
            say(f"{self._role} {one} is here")

    def present(self, deadline: float) -> list[str]:
        """Those who are here, in order; waits for the first one. TimeoutError when it is too late for anybody."""
        with self._changed:
            is_met = self._changed.wait_for(lambda: self._here, deadline - time.monotonic())
            if not is_met or time.monotonic() > deadline:
                raise TimeoutError(f"no {self._role} did in time what it was asked for; see above who was lost")
            return sorted(self._here)

    def lost(self) -> list[str]:
        """Those who are listed, and silent for too long."""
        with self._changed:
            return sorted(one for one, since in self._silent.items() if time.monotonic() - since > LOST)

    def ask(self, path: str, bodies: Mapping[str, bytes]) -> dict[str, bytes]:
        """A request to each of them at once; who does not answer is left out, until it is met again."""
        with ThreadPoolExecutor(max_workers=len(bodies)) as pool:
            answers = pool.map(lambda item: self._answer(path, *item), bodies.items())
            return {one: answer for one, answer in zip(bodies, answers, strict=True) if answer is not None}

    def drop(self, one: str, why: object) -> None:
        with self._changed:
            self._here.discard(one)
            self._silent[one] = time.monotonic()
        say(f"{self._role} {one} is lost: {why}")

    def _answer(self, path: str, one: str, body: bytes) -> bytes | None:
        try:
            return call("POST", one, path, body, timeout=ANSWER)
        except (OSError, Refused) as error:
            self.drop(one, error)
            return None

    def _greets(self, one: str) -> bool:
        try:
            call("GET", one, "/ping", timeout=HELLO)
        except (OSError, Refused, ValueError):
            return False
        return True
