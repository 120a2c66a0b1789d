"""How fast the story is told: MOCK_PACE is a factor of every pause; with 0.05 a minute is over in three seconds."""

import os
import time

PACE = float(os.environ.get("MOCK_PACE", "1"))


def seconds(number: float) -> float:
    """So long is a pause of that many seconds in the story."""
    return number * PACE


def pause(number: float) -> None:
    time.sleep(seconds(number))
