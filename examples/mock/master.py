"""The master's side of DI-engine's protocol: it connects to slaves, and gives each a task at a time."""

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from examples.mock.pace import pause, seconds
from examples.mock.slave import ANSWER, NOT_CONNECTED, TOLERANCE, Data, TaskFailed, code_of, envelope, refusal, send
from examples.rl.say import say
from examples.rl.web import Call, Refused, Routes, split

TASK = 60.0  # seconds for a task
RETRY = 1.0  # seconds between two attempts to connect
PATIENCE = 120.0  # seconds for all of them

FAULTS = (OSError, Refused, TaskFailed, ValueError)
"""What may come from a slave."""


class Slot:
    """A slave, as its master knows it."""

    def __init__(self, address: str, role: str) -> None:
        self.address = address
        self.role = role
        self.token = uuid.uuid4().hex
        self.heard = time.monotonic()
        self.results: dict[str, tuple[bool, Data]] = {}
        self.is_busy = False  # with more than one task: somebody has it for themselves


class Master:
    def __init__(self) -> None:
        self.port = 0  # where slaves call back; known when somebody listens
        self._slots: dict[str, Slot] = {}
        self._met: set[str] = set()
        self._changed = threading.Condition()

    @property
    def routes(self) -> Routes:
        return {
            ("GET", "/slave/heartbeat"): self._heartbeat,
            ("PUT", "/slave/task/complete"): lambda request: self._ended(request, True),
            ("PUT", "/slave/task/fail"): lambda request: self._ended(request, False),
        }

    def connected(self, role: str) -> list[str]:
        """The slaves of a role who have given a sign of life lately."""
        with self._changed:
            oldest = time.monotonic() - max(seconds(TOLERANCE), 5.0)
            for address in [slot.address for slot in self._slots.values() if slot.heard < oldest]:
                del self._slots[address]
            return [slot.address for slot in self._slots.values() if slot.role == role]

    def connect(self, address: str, role: str) -> None:
        """OSError or Refused when that is not possible now."""
        slot = Slot(address, role)
        with socket.create_connection(split(address), timeout=ANSWER) as probe:
            own = probe.getsockname()[0]  # the address of ours that this slave can reach
        with self._changed:
            self._slots[address] = slot  # before it answers: its sign of life may be faster
        master = {"address": f"http://{own}:{self.port}"}
        try:
            send("POST", address, "/connect", {"master": master, "data": {}}, slot.token)
        except (OSError, Refused):
            self._slots.pop(address, None)
            raise

    def has_met(self, address: str) -> bool:
        """It is connected, and that has been said."""
        return address in self._met

    def try_to_connect(self, address: str, role: str, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Again and again, as long as it is wanted; in the words that users of DI-engine know."""
        say(f"try to connect to {address}")
        deadline = time.monotonic() + PATIENCE
        while is_wanted() and time.monotonic() < deadline:
            try:
                self.connect(address, role)
            except (OSError, Refused):
                pause(RETRY)
                continue
            try:
                self.perform(address, "resource", {})
            except FAULTS:
                say(f"can't acquire resource for {role}({address})")
            say(f"Successed to connect to {address}")
            self._met.add(address)
            return True
        return False

    def disconnect(self, address: str) -> None:
        with self._changed:
            slot = self._slots.pop(address, None)
            self._changed.notify_all()
        if slot is not None:
            try:
                send("DELETE", address, "/disconnect", {}, slot.token)
            except (OSError, Refused) as error:
                say(f"{address} is gone without a goodbye: {error}")

    def take(self, role: str) -> str:
        """A slave of this role who is free, for the caller alone; empty when nobody is."""
        with self._changed:
            for slot in self._slots.values():
                if slot.role == role and not slot.is_busy:
                    slot.is_busy = True
                    return slot.address
        return ""

    def give_back(self, address: str) -> None:
        with self._changed:
            if slot := self._slots.get(address):
                slot.is_busy = False

    def perform(self, address: str, name: str, data: Data) -> Data:
        """One task: its result, or one of FAULTS."""
        slot = self._slots.get(address)
        if slot is None:
            raise ConnectionError(f"{address} is not connected")
        task = f"{name}_{uuid.uuid4().hex}"
        try:
            send("POST", address, "/task/new", {"task": {"id": task}, "data": {"name": name, **data}}, slot.token)
        except (OSError, Refused) as error:
            if isinstance(error, OSError) or code_of(error) == NOT_CONNECTED:  # it died, or was born again
                self._slots.pop(address, None)
            raise
        with self._changed:
            is_over = self._changed.wait_for(lambda: task in slot.results or self._slots.get(address) is not slot, TASK)
            if not is_over:
                raise TimeoutError(f"{address} did not end {name} in {TASK:g} seconds")
            if task not in slot.results:
                raise ConnectionError(f"{address} was left before it ended {name}")
            is_good, result = slot.results.pop(task)
        if not is_good:
            raise TaskFailed(str(result.get("reason")))
        return result

    def _slot_of(self, request: Call) -> Slot:
        token = request.headers.get("token")
        for slot in self._slots.values():
            if slot.token == token:
                return slot
        raise refusal(NOT_CONNECTED, "not connected to you")

    def _heartbeat(self, request: Call) -> bytes:
        with self._changed:
            self._slot_of(request).heard = time.monotonic()
        return envelope({})

    def _ended(self, request: Call, is_good: bool) -> bytes:
        told: Any = json.loads(request.body)
        with self._changed:
            self._slot_of(request).results[str(told["task"]["id"])] = (is_good, dict(told["result"]))
            self._changed.notify_all()
        return envelope({})
