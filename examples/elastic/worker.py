"""A worker: gets the parameters, finds on its share of the points how they should change, pushes that; and again.

Its share follows from the membership: who takes part, and which of them it is. So it changes whenever somebody comes or
goes, and nobody has to be restarted for that.
"""

import os
import signal
import socket
import sys
import time
from io import BufferedIOBase

from examples.elastic.members import Members
from examples.elastic.server import say
from examples.elastic.task import POINTS, Vector, share, slope
from examples.elastic.wire import NOTHING, Message, receive, send

PATIENCE = 120.0  # seconds in which the server, or our own name in the membership, must be there
ANSWER = 30.0  # seconds for one answer: longer than the server waits for others
PAUSE = 0.2  # seconds between two attempts


class Worker:
    def __init__(self, name: str, address: str, members: Members, seconds: float) -> None:
        self._name = name
        self._address = address
        self._members = members
        self._seconds = seconds
        self._stream: BufferedIOBase | None = None
        self.is_leaving = False

    def work(self) -> None:
        """Until the training is over, or we are told to go: then the step in hand is pushed, and that was it."""
        answer = self._exchange(-1, 0, NOTHING)
        place = (0, 0)
        while answer.step < answer.points and not self.is_leaving:
            if (now := self._place()) != place:
                place = now
                say(f"{self._name} has share {place[0] + 1} of {place[1]} from step {answer.step} on")
            points = share(*place)
            time.sleep(self._seconds * (points.stop - points.start) / POINTS)  # real points would take their time
            answer = self._exchange(answer.step, points.stop - points.start, slope(answer.vector, points))
        say(f"{self._name} leaves at step {answer.step}")

    def _place(self) -> tuple[int, int]:
        """Which of the workers we are. One that just started may not be in the file yet."""
        deadline = time.monotonic() + PATIENCE
        while self._name not in (names := self._members.role("worker")):
            if self.is_leaving or time.monotonic() > deadline:
                sys.exit(f"{self._name} is not in the membership: {names}")
            time.sleep(PAUSE)
        return names.index(self._name), len(names)

    def _exchange(self, step: int, points: int, vector: Vector) -> Message:
        """Push a slope (or nothing), and get the present step and its parameters. The server may go and come back."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                stream = self._stream = self._stream or self._connect()
                send(stream, Message(self._name, step, points, vector))
                return receive(stream)
            except OSError as error:
                self._stream = None
                if self.is_leaving or time.monotonic() > deadline:
                    sys.exit(f"no server at {self._address}: {error}")
                time.sleep(PAUSE)

    def _connect(self) -> BufferedIOBase:
        host, _, port = self._address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=ANSWER) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection.makefile("rwb")  # keeps the connection open when the block is left


def main() -> None:
    name, address = os.environ["TRAININGJOB_SERVICE"].split(".")[0], os.environ["SERVER_HOSTS"].split(",")[0]
    seconds = float(os.environ.get("SECONDS_PER_STEP", "0.5"))
    worker = Worker(name, address, Members.of_this_job(), seconds)

    def leave(*_: object) -> None:
        worker.is_leaving = True

    signal.signal(signal.SIGTERM, leave)
    worker.work()


if __name__ == "__main__":
    main()
