"""The mock of an aggregator: to the coordinator a learner, to its learners a master. What they find, it adds up.

Its learners are those that the coordinator names by POST /learners, or those that di-server lists for it.
"""

import json
import os
import threading
from collections.abc import Iterable

from examples.mock.master import FAULTS, Master
from examples.mock.pace import pause
from examples.mock.slave import Data, Slave, TaskFailed, envelope
from examples.rl.diserver import TROUBLE, DiServer
from examples.rl.say import say
from examples.rl.web import Call, serve

LOOK_EVERY = 3.0  # seconds
MOST = 64  # learners


class Aggregator:
    def __init__(self, port: int) -> None:
        self.master = Master()
        self.master.port = port
        self._wanted: set[str] = set()
        self._failed: set[str] = set()
        self._started = set[str]()

    def gather(self, addresses: Iterable[str]) -> None:
        """These are to be our learners, and nobody else."""
        wanted = set(list(addresses)[:MOST])
        for address in sorted(self._wanted - wanted):
            self.master.disconnect(address)
        new, self._wanted = sorted(wanted - self._wanted), wanted
        for address in new:
            threading.Thread(target=self._connect, args=(address,), daemon=True).start()

    def told(self, request: Call) -> bytes:
        """POST /learners: the answer says whom we could not connect to."""
        addresses = json.loads(request.body)
        if not isinstance(addresses, list) or not all(isinstance(each, str) for each in addresses):
            raise TypeError("learners are a list of addresses")
        self.gather(addresses)
        return envelope({"failed": sorted(self._failed & self._wanted)})

    def perform(self, name: str, data: Data) -> Data:
        """The same task for every learner; for a batch, each gets a share of it."""
        learners = self.master.connected("learner")
        if not learners:
            raise TaskFailed("no learner is connected")
        if name == "learner_get_data_task":
            return {"batch_size": len(learners)}
        results = []
        for rank, address in enumerate(learners):
            share = {"values": data["values"][rank :: len(learners)]} if "values" in data else {}
            try:
                self._start(address, name)
                results.append(self.master.perform(address, name, share))
            except FAULTS as error:
                say(f"learner {address} failed at {name}: {error}")
        if not results:
            raise TaskFailed(f"no learner could do {name}")
        merged: Data = {"world_size": len(results), "is_done": False, "cpu": 0, "gpu": 0, "total": 0.0}
        return merged | {key: sum(r.get(key, 0) for r in results) for key in ("cpu", "gpu", "total")}

    def look(self, server: DiServer) -> None:
        while True:
            try:
                self.gather(server.replicas(of="aggregator").learners)
            except TROUBLE as error:
                say(f"di-server: {error}")
            pause(LOOK_EVERY)

    def _connect(self, address: str) -> None:
        if self.master.try_to_connect(address, "learner"):
            self._failed.discard(address)
        else:
            self._failed.add(address)

    def _start(self, address: str, name: str) -> None:
        """Who came later has not been started yet."""
        if name == "learner_learn_task" and address not in self._started:
            self.master.perform(address, "learner_start_task", {})
        if name.startswith("learner_"):
            self._started.add(address)


def main() -> None:
    port = int(os.environ["AGGREGATOR_PORT"])
    aggregator = Aggregator(port)
    if "KUBERNETES_AGGREGATOR_URL" not in os.environ:  # else the coordinator names the learners
        threading.Thread(target=aggregator.look, args=(DiServer(os.environ),), daemon=True).start()
    slave = Slave(aggregator.perform)
    routes = {**slave.routes, **aggregator.master.routes, ("POST", "/learners"): aggregator.told}
    serve("aggregator", {port: routes})


if __name__ == "__main__":
    main()
