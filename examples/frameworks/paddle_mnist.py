"""PaddlePaddle collective training of a small convolutional network: gradients are averaged over all trainers."""

import sys
from typing import Any

from examples.frameworks.data import GOOD, KINDS, SIDE, TRAINING, UNSEEN
from examples.need import need

paddle = need("paddle", "paddlepaddle")
EPOCHS, BATCH = 4, 64


def network() -> Any:
    paddle.seed(0)
    nn = paddle.nn
    return nn.Sequential(nn.Conv2D(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * SIDE * SIDE, KINDS))


def pictures(pixels: Any) -> Any:
    return paddle.to_tensor(pixels).reshape([-1, 1, SIDE, SIDE])


def main() -> int:
    paddle.distributed.init_parallel_env()  # reads PADDLE_*
    rank, size = paddle.distributed.get_rank(), paddle.distributed.get_world_size()
    model = paddle.DataParallel(network())
    optimizer = paddle.optimizer.Adam(learning_rate=0.005, parameters=model.parameters())
    images = TRAINING.share(rank, size)
    for epoch in range(1, EPOCHS + 1):
        for start in range(0, len(images.kinds), BATCH):
            part = slice(start, start + BATCH)
            loss = paddle.nn.functional.cross_entropy(
                model(pictures(images.pixels[part])), paddle.to_tensor(images.kinds[part])
            )
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        print(f"epoch {epoch} of {EPOCHS}: loss {float(loss):.4f}", flush=True)
    guessed = model(pictures(UNSEEN.pixels)).argmax(axis=1).numpy()
    found = float((guessed == UNSEEN.kinds).mean())
    print(f"process {rank} of {size}: accuracy {found:.3f}", flush=True)
    return 0 if found >= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
