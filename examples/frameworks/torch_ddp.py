"""PyTorch DistributedDataParallel: each process learns from its share of the images, and gradients are averaged."""

import sys
from typing import Any

from examples.frameworks.data import GOOD, KINDS, SIDE, TRAINING, UNSEEN
from examples.need import need

torch = need("torch", "torch")
EPOCHS, BATCH = 4, 64


def network() -> Any:
    torch.manual_seed(0)
    hidden = 64
    return torch.nn.Sequential(torch.nn.Linear(SIDE * SIDE, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, KINDS))


def accuracy(model: Any) -> float:
    with torch.no_grad():
        guessed = model(torch.from_numpy(UNSEEN.pixels)).argmax(dim=1)
    return float((guessed == torch.from_numpy(UNSEEN.kinds)).float().mean())


def main() -> int:
    torch.distributed.init_process_group("gloo")  # reads MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    images = TRAINING.share(rank, size)
    pixels, kinds = torch.from_numpy(images.pixels), torch.from_numpy(images.kinds)
    for epoch in range(1, EPOCHS + 1):
        for batch, wanted in zip(pixels.split(BATCH), kinds.split(BATCH), strict=True):
            loss = torch.nn.functional.cross_entropy(model(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} of {EPOCHS}: loss {loss.item():.4f}", flush=True)
    found = accuracy(model)
    print(f"process {rank} of {size}: accuracy {found:.3f}", flush=True)
    torch.distributed.destroy_process_group()
    return 0 if found >= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
