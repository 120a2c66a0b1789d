"""The mock of a learner: it wants data for ever, one piece at a time, and adds up what it gets."""

import os

from examples.mock.slave import Data, Slave, TaskFailed
from examples.rl.web import serve


class Learner:
    def __init__(self) -> None:
        self.total = 0.0

    def perform(self, name: str, data: Data) -> Data:
        match name:
            case "resource":
                return {"cpu": os.cpu_count(), "gpu": 0}
            case "learner_start_task":
                self.total = 0.0
                return {}
            case "learner_get_data_task":
                return {"batch_size": 1}
            case "learner_learn_task":
                self.total += sum(float(value) for value in data["values"])
                return {"total": self.total, "is_done": False}
            case "learner_close_task":
                return {"total": self.total}
        raise TaskFailed(f"a learner does not know {name}")


def main() -> None:
    first = int(os.environ["LEARNER_PORT"]) + int(os.environ.get("START_RANK", "0"))
    ports = range(first, first + int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # one for each rank
    serve("learner", {port: Slave(Learner().perform).routes for port in ports})


if __name__ == "__main__":
    main()
