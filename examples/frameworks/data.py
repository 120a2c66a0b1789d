"""Images of ten kinds, made of ten patterns and noise. Every process makes them by itself; nothing is downloaded."""

from typing import Any, NamedTuple

from examples.need import need

np = need("numpy", "numpy")

KINDS, SIDE = 10, 8
NOISE = 1.5
GOOD = 0.95
"""The share of unseen images that a trained network must name rightly."""

_PATTERNS = np.random.default_rng(0).normal(size=(KINDS, SIDE * SIDE))


class Images(NamedTuple):
    pixels: Any
    """Floats, SIDE * SIDE for each image."""
    kinds: Any

    def share(self, rank: int, size: int) -> "Images":
        """What one of so many processes learns from."""
        return Images(self.pixels[rank::size], self.kinds[rank::size])


def _images(seed: int, number: int) -> Images:
    random = np.random.default_rng(seed)
    kinds = random.integers(KINDS, size=number)
    noise = NOISE * random.normal(size=(number, SIDE * SIDE))
    return Images((_PATTERNS[kinds] + noise).astype(np.float32), kinds.astype(np.int64))


TRAINING, UNSEEN = _images(1, 4096), _images(2, 1000)
