"""PyTorch under torchrun, with a number of processes that changes.

When replicas come or go, torchrun ends this program in all of them and starts it again with new ranks. Each process
saves every step into a file of its own. After a start the process with the newest file sends its state to the others.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from examples.frameworks.data import GOOD, TRAINING
from examples.frameworks.torch_ddp import accuracy, network
from examples.need import need

torch = need("torch", "torch")
STEPS, BATCH = int(os.environ.get("STEPS", "300")), 64
SECONDS_PER_STEP = float(os.environ.get("SECONDS_PER_STEP", "0.1"))


def own_file() -> Path:
    """Of this pod: torchrun is the parent of all processes that it starts there."""
    job, index = os.environ["TRAININGJOB_NAME"], os.environ["TRAININGJOB_REPLICA_INDEX"]
    return Path(tempfile.gettempdir()) / f"{job}-{index}-{os.getppid()}.pt"


def save(file: Path, state: dict[str, Any]) -> None:
    """Replaces the file as a whole: torchrun may end the process at any time."""
    new = file.with_suffix(".new")
    torch.save(state, new)
    new.replace(file)


def newest(state: dict[str, Any]) -> dict[str, Any]:
    """The state of the process that has made the most steps."""
    steps: list[int] = [0] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(steps, state["step"])
    sent = [state]
    torch.distributed.broadcast_object_list(sent, src=steps.index(max(steps)))
    return sent[0]


def main() -> int:
    torch.distributed.init_process_group("gloo")  # torchrun sets what it reads
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model, file = network(), own_file()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    own = torch.load(file) if file.exists() else {"step": 0, "model": model.state_dict()}
    state = newest(own)
    model.load_state_dict(state["model"])
    trained = torch.nn.parallel.DistributedDataParallel(model)
    print(f"process {rank} of {size} begins at step {state['step']}", flush=True)
    images = TRAINING.share(rank, size)
    batches = len(images.kinds) // BATCH
    for step in range(state["step"] + 1, STEPS + 1):
        part = slice(step % batches * BATCH, (step % batches + 1) * BATCH)
        pixels, kinds = torch.from_numpy(images.pixels[part]), torch.from_numpy(images.kinds[part])
        loss = torch.nn.functional.cross_entropy(trained(pixels), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        save(file, {"step": step, "model": model.state_dict()})
        if rank == 0 and step % 10 == 0:
            print(f"step {step} of {STEPS}: loss {loss.item():.4f}, {size} processes", flush=True)
        time.sleep(SECONDS_PER_STEP)
    found = accuracy(model)
    print(f"process {rank} of {size}: accuracy {found:.3f}", flush=True)
    torch.distributed.destroy_process_group()
    file.unlink(missing_ok=True)
    return 0 if found >= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
