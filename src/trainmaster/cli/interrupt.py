"""Signals that end a command: the first one stops it gracefully, the second one at once."""

import asyncio
import signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Construct it inside a running event loop; the handlers stay until the loop is closed."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.number = 0
        """The number of the first signal."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._take, number)

    def _take(self, number: int) -> None:
        (self.second if self.first.is_set() else self.first).set()
        self.number = self.number or number
