"""The slave's side of DI-engine's protocol: one master, and one task at a time.

POST /connect and DELETE /disconnect begin and end the time with a master, POST /task/new brings a task, whose end is
told to the master by PUT; GET /ping says that somebody is here, DELETE /shutdown ends the program. Once connected,
everything carries the token that the master chose, and the slave gives the master a sign of life every 3 seconds.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from examples.mock.pace import pause, seconds
from examples.rl.say import say
from examples.rl.web import Call, Refused, Routes, call

HEARTBEAT = 3.0  # seconds
TOLERANCE = 17.0  # seconds of silence after which the other side is thought dead
ANSWER = 10.0  # seconds for one answer

ALREADY_CONNECTED, NOT_CONNECTED, ALREADY_BUSY = 501, 502, 601

Data: TypeAlias = dict[str, Any]
Perform: TypeAlias = Callable[[str, Data], Data]


class TaskFailed(Exception):
    """The task could not be done; why, is told to the master."""


class Slave:
    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._master = self._token = self._task = ""
        self._turn = threading.Lock()

    @property
    def routes(self) -> Routes:
        return {
            ("POST", "/connect"): self._connect,
            ("DELETE", "/disconnect"): self._disconnect,
            ("POST", "/task/new"): self._new_task,
            ("GET", "/ping"): lambda _: envelope({}),
            ("DELETE", "/shutdown"): self._shutdown,
        }

    def _connect(self, request: Call) -> bytes:
        address, token = str(json.loads(request.body)["master"]["address"]), request.headers["token"]
        with self._turn:
            if self._token not in ("", token):
                raise refusal(ALREADY_CONNECTED, "already connected")
            if not self._token:
                self._master, self._token = address, token
                threading.Thread(target=self._beat, args=(address, token), daemon=True).start()
        say(f"connected to {address}")
        return envelope({})

    def _disconnect(self, request: Call) -> bytes:
        with self._turn:
            self._check(request)
            self._forget()
        return envelope({})

    def _new_task(self, request: Call) -> bytes:
        asked = json.loads(request.body)
        task, name, data = str(asked["task"]["id"]), str(asked["data"]["name"]), dict(asked["data"])
        with self._turn:
            self._check(request)
            if self._task:
                raise refusal(ALREADY_BUSY, f"task {self._task} is not done yet")
            self._task = task
        threading.Thread(target=self._do, args=(task, name, data, self._master, self._token), daemon=True).start()
        return envelope({})

    def _shutdown(self, request: Call) -> bytes:
        with self._turn:
            self._check(request)
        os.kill(os.getpid(), signal.SIGTERM)  # after this answer, by the thread that waits for it
        return envelope({})

    def _check(self, request: Call) -> None:
        if not self._token or request.headers.get("token") != self._token:
            raise refusal(NOT_CONNECTED, "not connected to you")

    def _forget(self) -> None:
        say(f"disconnected from {self._master}")
        self._master = self._token = self._task = ""

    def _do(self, task: str, name: str, data: Data, master: str, token: str) -> None:
        try:
            path, result = "/slave/task/complete", self._perform(name, data)
        except (TaskFailed, ValueError, KeyError, TypeError, OSError) as error:
            path, result = "/slave/task/fail", {"reason": str(error)}
        with self._turn:
            if self._task == task:
                self._task = ""  # before the master hears of it: it may have the next one ready
        try:
            send("PUT", master, path, {"task": {"id": task}, "result": result}, token)
        except (OSError, Refused) as error:
            say(f"{master} does not want the result of {name}: {error}")

    def _beat(self, master: str, token: str) -> None:
        heard = time.monotonic()
        while self._token == token:
            try:
                send("GET", master, "/slave/heartbeat", {}, token)
                heard = time.monotonic()
            except Refused:  # it does not know us any more
                self._leave(token)
            except OSError:
                if time.monotonic() - heard > max(seconds(TOLERANCE), 1.0):
                    self._leave(token)
            pause(HEARTBEAT)

    def _leave(self, token: str) -> None:
        with self._turn:
            if self._token == token:
                self._forget()


def send(method: str, address: str, path: str, body: Any, token: str, timeout: float = ANSWER) -> Any:
    """The data of a good answer."""
    headers = {"Content-Type": "application/json", "Channel": "0", "Token": token}
    answer = json.loads(call(method, address, path, json.dumps(body).encode(), headers=headers, timeout=timeout))
    return answer.get("data")


def envelope(data: Mapping[str, Any], code: int = 0, message: str = "") -> bytes:
    return json.dumps({"success": code == 0, "code": code, "message": message, "data": data}).encode()


def refusal(code: int, message: str) -> Refused:
    return Refused(400, envelope({}, code, message))


def code_of(refused: Refused) -> int:
    """The code in an envelope; 0 when it is none."""
    try:
        return int(json.loads(refused.body)["code"])
    except (ValueError, KeyError, TypeError):
        return 0
