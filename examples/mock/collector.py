"""The mock of a collector: for each task it makes up to five pieces of data, one a second."""

import os
import random
import uuid

from examples.mock.pace import pause
from examples.mock.slave import Data, Slave, TaskFailed
from examples.rl.web import serve


class Collector:
    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret comes of it
        self._left = 0

    def perform(self, name: str, data: Data) -> Data:
        match name:
            case "resource":
                return {"cpu": os.cpu_count(), "gpu": 0}
            case "collector_start_task":
                self._left = self._random.randint(1, 5)
                return {}
            case "collector_data_task":
                pause(1.0)
                self._left -= 1
                return {"id": str(uuid.uuid1()), "value": self._random.random(), "is_last": self._left <= 0}
            case "collector_close_task":
                self._left = 0
                return {}
        raise TaskFailed(f"a collector does not know {name}")


def main() -> None:
    collector = Collector(os.environ.get("MOCK_SEED", "0"))
    serve("collector", {int(os.environ["COLLECTOR_PORT"]): Slave(collector.perform).routes})


if __name__ == "__main__":
    main()
