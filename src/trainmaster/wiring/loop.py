"""Runs a program in an event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from trainmaster.core.errors import Trainmaster

T = TypeVar("T")


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end in a loop of its own."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(work)
    except* Trainmaster as group:
        # Whatever else was cancelled with it, the first error is the reason.
        raise first_error(group) from None
    raise AssertionError("unreachable: the block above returned or raised")


def first_error(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None  # not made for this platform; the standard loop is slower and does the same
    return uvloop.new_event_loop
