"""How log lines look: JSON for machines, columns for people.

Lines for stderr are written by a thread: a reader that does not read costs lines, and does not stop the event loop.
"""

import atexit
import io
import logging
import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
import structlog

from trainmaster.core.plain import BIDI

log = structlog.get_logger(__name__)

QUEUED_BYTES = 4 * 1024 * 1024
"""How much may wait to be written."""
LAST_LINES_TIMEOUT = 2.0
"""Seconds for what is waiting when the process ends."""


def configure_logging(style: str, verbosity: int, out: TextIO | None = None) -> None:
    """``style`` is json, console or auto (console on a terminal). Verbosity 4 and more shows every action.
    Lines go to stderr by a thread, or to the file ``out`` directly."""
    out = out or cast(TextIO, _stderr())
    if style == "auto":
        style = "console" if out.isatty() else "json"
    renderer: Any = structlog.processors.JSONRenderer(serializer=_json)
    if style == "console":
        # Plain tracebacks: rich, if it happens to be installed, shows the values of variables, tokens included.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if style == "json":
        shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbosity >= 4 else logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    _configure_libraries(shared, renderer, out)


def _configure_libraries(shared: list[Any], renderer: Any, out: TextIO) -> None:
    """What asyncio and aiohttp have to say looks like our own lines."""
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


class BackgroundStream(io.TextIOBase):
    """A stream that never makes its writers wait. What does not fit into the queue is dropped, and reported when the
    reader has caught up."""

    def __init__(self, out: TextIO, count_dropped: Callable[[], None]) -> None:
        self._out = out
        self._count_dropped = count_dropped
        self._lines: deque[str] = deque()
        self._queued = 0
        self._dropped = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def isatty(self) -> bool:
        return self._out.isatty()

    def write(self, text: str) -> int:
        with self._changed:
            if self._queued + len(text) <= QUEUED_BYTES:
                self._lines.append(text)
                self._queued += len(text)
                self._changed.notify_all()
            else:
                self._dropped += 1
                self._count_dropped()
        return len(text)

    def drain(self, timeout: float) -> bool:
        """True if everything was written within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queued, timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                batch = "".join(self._lines)
                self._lines.clear()
            try:
                self._out.write(batch)
                self._out.flush()
            except (OSError, ValueError):
                pass  # a full disk, or a reader that has gone: it costs these lines
            with self._changed:
                dropped, self._dropped = self._dropped, 0
                self._queued -= len(batch)
                self._changed.notify_all()
            if dropped:
                log.warning("log lines dropped: they came faster than they were read", lines=dropped)


_background: BackgroundStream | None = None


def _stderr() -> BackgroundStream:
    # Imported here: --help needs no metrics.
    from trainmaster.runtime.metrics import LOG_LINES_DROPPED

    global _background
    flush_logging()
    _background = BackgroundStream(sys.stderr, LOG_LINES_DROPPED.inc)
    return _background


@atexit.register
def _write_last_lines() -> None:
    flush_logging()


def flush_logging(timeout: float = LAST_LINES_TIMEOUT) -> bool:
    """True if everything that was logged is written."""
    return _background is None or _background.drain(timeout)


class Journal(io.TextIOWrapper):
    """A file for the log. A full disk costs lines, not what the lines are about."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.open("wb", buffering=0), encoding="utf-8", write_through=True)

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)


_CONTROL = re.compile(f"[\x7f-\x9f\u2028\u2029{BIDI}]")
"""What JSON does not escape, and terminals obey."""


def _json(event: Any, **_: Any) -> str:
    text = msgspec.json.encode(event, enc_hook=str).decode()
    return text if text.isprintable() else _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
