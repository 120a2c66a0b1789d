"""How log lines look: JSON for machines, columns for people."""

import io
import logging
import sys
from pathlib import Path
from typing import Any, TextIO

import msgspec
import structlog


def configure_logging(style: str, verbosity: int, out: TextIO | None = None) -> None:
    """``style`` is json, console or auto (console on a terminal). Verbosity 4 and more shows every action.
    Lines go to stderr, or to ``out``."""
    out = out or sys.stderr
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
        logger_factory=structlog.PrintLoggerFactory(out),
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


class Journal(io.TextIOWrapper):
    """A file for the log. A full disk costs lines, not what the lines are about."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.open("wb", buffering=0), encoding="utf-8", write_through=True)

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)


def _json(event: Any, **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
