"""The log of the Python API: that of Python, below ``trainmaster``, and silent unless the program wants it."""

import logging

import structlog


def log_as_library() -> None:
    """Without it structlog would print to stdout. A program that has configured structlog keeps what it has."""
    library = logging.getLogger("trainmaster")
    if not library.handlers:
        library.addHandler(logging.NullHandler())
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
