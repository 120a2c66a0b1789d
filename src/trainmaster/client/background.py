"""An event loop in a thread, for callers without one, or in whose thread one is running, as in notebooks."""

import asyncio
import atexit
import concurrent.futures.thread
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from trainmaster.client.errors import TrainmasterError

T = TypeVar("T")

_register_at_exit: Callable[[Callable[[], object]], object] = getattr(threading, "_register_atexit", atexit.register)
"""Before the threads of ``asyncio.to_thread`` end, which a cluster needs to stop: ``atexit`` is too late for that."""


class Background:
    """The thread starts with the first call, and does not keep the process alive. All methods may be called from every
    thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="trainmaster", daemon=True)
        self._is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._started(work))
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise TrainmasterError("the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the last part of an iterator. The garbage collector may end an iterator in our own thread, which cannot
        wait for itself."""
        if self._loop is None or self._is_closed:
            work.close()
        elif threading.current_thread() is self._thread:
            asyncio.run_coroutine_threadsafe(work, self._loop)
        else:
            self.run(work)

    def close(self, last: Coroutine[Any, Any, None], hurry: Callable[[], object]) -> None:
        """Runs ``last``, cancels what is left, and ends the thread. After Ctrl-C calls ``hurry``, and waits on."""
        with self._lock:
            loop, was_closed, self._is_closed = self._loop, self._is_closed, True
        if loop is None or was_closed:
            last.close()
            return
        closing = asyncio.run_coroutine_threadsafe(last, loop)
        try:
            try:
                closing.result()
            except KeyboardInterrupt:
                loop.call_soon_threadsafe(hurry)
                closing.result()
                raise
        finally:
            asyncio.run_coroutine_threadsafe(_end_others(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    def _started(self, work: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                work.close()
                raise TrainmasterError("this client is closed; make a new one")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread.start()
            return self._loop

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None  # noqa: S101  it is set before the thread starts
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()


async def _end_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


_open: dict[object, Callable[[], object]] = {}


def close_at_exit(close: Callable[[], object]) -> object:
    """Returns what ``forget`` takes."""
    mark = object()
    _open[mark] = close
    return mark


def forget(mark: object) -> None:
    _open.pop(mark, None)


def _close_all() -> None:
    for close in list(_open.values()):
        with contextlib.suppress(Exception):
            close()


# Functions run in the reverse order: that of the thread pool, which is imported above, runs after ours.
with contextlib.suppress(RuntimeError):  # the process ends already
    _register_at_exit(_close_all)
