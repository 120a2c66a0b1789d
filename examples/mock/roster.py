"""Who is there for the mock's coordinator: who is listed by di-server is connected to, and nobody else."""

import threading
import time

from examples.mock.master import Master
from examples.mock.pace import pause
from examples.mock.slave import send
from examples.rl.diserver import TROUBLE, DiServer, Replicas
from examples.rl.say import say
from examples.rl.web import Refused

LOOK_EVERY = 2.0  # seconds: so often di-server is asked
PATIENCE = 120.0  # seconds for replicas to come


class Roster:
    """With an aggregator, the learners are its own: it is told of them, and stands for them as one learner."""

    def __init__(self, server: DiServer, master: Master, aggregator: str) -> None:
        self._server = server
        self._master = master
        self._aggregator = aggregator
        self._known: dict[str, str] = {}  # role by address
        self._failed: dict[str, str] = {}

    def meet_aggregator(self) -> bool:
        self._expect({self._aggregator: "learner"})
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._master.has_met(self._aggregator):
                say("have connected to aggregator")
                return True
            pause(LOOK_EVERY)
        say("can't connect to aggregator, exit!")
        return False

    def begin(self, collectors: int, learners: int) -> None:
        found = self._server.ask(collectors, learners)
        say(f"Recevied replicas response from server {found}")
        self._follow(Replicas(list(found["collectors"]), list(found["learners"])))
        threading.Thread(target=self._look, daemon=True).start()

    def wait(self) -> bool:
        """For one of each: more may come later."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            collectors, learners = (len(self._master.connected(role)) for role in ("collector", "learner"))
            if collectors and learners:
                text = f"Have connected {collectors} collectors, {learners} learners, match limit requests."
                say(text)
                return True
            say(f"Only can connect {collectors} collectors, {learners} learners.")
            pause(LOOK_EVERY)
        return False

    def give_one_back(self) -> None:
        """A collector too many."""
        pause(2.0)
        try:
            say(f"send delete and received {self._server.remove(1, 0)}")
        except TROUBLE as error:
            say(f"di-server: {error}")

    def _look(self) -> None:
        while True:
            pause(LOOK_EVERY)
            lost = Replicas(self._lost("collector"), self._lost("learner"))
            say(f"failed list: {lost.collectors} {lost.learners}")
            try:
                if any(lost):
                    self._server.report_failed(lost)
                    self._failed.clear()
                now = self._server.replicas()
                say(f"currnet list: {now.collectors} {now.learners}")
                self._follow(now)
            except TROUBLE as error:
                say(f"di-server: {error}")

    def _lost(self, role: str) -> list[str]:
        return [address for address, its_role in self._failed.items() if its_role == role]

    def _follow(self, now: Replicas) -> None:
        collectors = dict.fromkeys(now.collectors, "collector")
        if not self._aggregator:
            self._expect(collectors | dict.fromkeys(now.learners, "learner"))
            return
        self._expect(collectors | {self._aggregator: "learner"})
        try:
            send("POST", self._aggregator, "/learners", now.learners, "")
        except (OSError, Refused, ValueError) as error:
            say(f"aggregator: {error}")

    def _expect(self, replicas: dict[str, str]) -> None:
        gone, new = self._known.keys() - replicas.keys(), replicas.keys() - self._known.keys()
        self._known = replicas
        for address in sorted(gone):
            self._master.disconnect(address)
        for address in sorted(new):
            threading.Thread(target=self._stay_connected, args=(address, replicas[address]), daemon=True).start()

    def _stay_connected(self, address: str, role: str) -> None:
        """As long as somebody is listed: who dies and is started again at the same address is a stranger to us."""

        def is_listed() -> bool:
            return address in self._known

        while is_listed():
            if not self._master.try_to_connect(address, role, is_listed):
                if is_listed():
                    self._failed[address] = role
                return
            while address in self._master.connected(role):
                pause(LOOK_EVERY)
