"""One line for each thing that happens, on stderr: the table alone is on stdout."""

import sys
import time


class Progress:
    def __init__(self) -> None:
        self._started = time.monotonic()
        self.phase = ""

    def __call__(self, said: str) -> None:
        place = f"({self.phase}) " if self.phase else ""
        print(f"{time.monotonic() - self._started:7.1f} s  {place}{said}", file=sys.stderr, flush=True)
