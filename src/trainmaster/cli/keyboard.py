"""Keys that are pressed on the terminal during a run."""

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

KEYS = {
    b"\x1b[A": "previous",
    b"\x1b[B": "next",
    b"\x1bOA": "previous",
    b"\x1bOB": "next",
    b"\x1b": "all",
    b"k": "previous",
    b"j": "next",
    b"p": "previous",
    b"n": "next",
    b"a": "all",
    b"q": "all",
    b"f": "failed",
}


@contextmanager
def keyboard(press: Callable[[str], object]) -> Iterator[None]:
    """Calls ``press`` for each known key until the block ends. Needs a running event loop. Does nothing if stdin is not
    the terminal of a foreground process: a process in the background is stopped if it reads or changes the terminal."""
    terminal = sys.stdin.fileno() if sys.stdin else -1
    if not _is_ours(terminal):
        yield
        return
    loop = asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)
    raw = termios.tcgetattr(terminal)
    raw[3] &= ~(termios.ICANON | termios.ECHO)  # Ctrl-C stays a signal

    def read() -> None:
        if not _is_ours(terminal) or not (keys := os.read(terminal, 64)):
            loop.remove_reader(terminal)
        elif key := KEYS.get(keys):
            press(key)

    termios.tcsetattr(terminal, termios.TCSADRAIN, raw)
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        if _is_ours(terminal):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _is_ours(terminal: int) -> bool:
    try:
        return os.isatty(terminal) and os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
