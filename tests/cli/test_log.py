import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from trainmaster.cli.log import QUEUED_BYTES, Journal, configure_logging, flush_logging
from trainmaster.core.ids import Key

pytestmark = pytest.mark.usefixtures("kept_logging")

ESCAPE = "\x1b"


class Screen(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def getvalue(self) -> str:
        assert flush_logging(timeout=60)
        return super().getvalue()


def written(
    monkeypatch: pytest.MonkeyPatch, style: str, verbosity: int = 0, *, is_terminal: bool = False
) -> tuple[Any, Screen]:
    """A logger, and what it writes on."""
    monkeypatch.setattr(sys, "stderr", screen := Screen(is_terminal=is_terminal))
    configure_logging(style, verbosity)
    return structlog.get_logger("test"), screen


def fail(log: Any) -> None:
    secret = "Bearer abc123"  # noqa: F841 a traceback may not show it
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("pass failed", job="ml/mnist")


# --- json ---


def test_a_json_log_has_one_object_in_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    log, screen = written(monkeypatch, "json")
    log.info("ready", kinds=["dijob"], key=Key("ml", "a"), at=datetime(2026, 11, 15, tzinfo=UTC), odd=object)
    log.warning("two\nlines", because="a\u0085b\u2028c")
    fail(log)

    ready, lines, failed = [json.loads(line) for line in screen.getvalue().split("\n")[:-1]]
    assert (ready["event"], ready["level"], ready["kinds"]) == ("ready", "info", ["dijob"])
    assert ready["timestamp"].endswith("Z")
    assert (lines["event"], lines["level"], lines["because"]) == ("two\nlines", "warning", "a\u0085b\u2028c")
    assert failed["exception"].startswith("Traceback")
    assert failed["exception"].endswith("ZeroDivisionError: division by zero")


def test_a_json_log_has_no_character_that_controls_or_reorders_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kubectl logs` shows it as it is; tenants write holders of Leases, messages and names."""
    log, screen = written(monkeypatch, "json")
    odd = "a\x1b\x7f\x9b2J\u202eb\u2066c\u200ed"
    log.info("lease", holder=odd)

    assert screen.getvalue().rstrip("\n").isprintable()
    assert json.loads(screen.getvalue())["holder"] == odd


def test_what_other_libraries_log_is_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio's "Task exception was never retrieved" is the line that one is paged for."""
    _, screen = written(monkeypatch, "json")
    logging.getLogger("asyncio").error("Task exception was never %s", "retrieved", exc_info=ZeroDivisionError("x"))
    logging.getLogger("aiohttp.access").info("not of interest")

    (line,) = [json.loads(line) for line in screen.getvalue().split("\n")[:-1]]
    assert (line["event"], line["level"]) == ("Task exception was never retrieved", "error")
    assert "ZeroDivisionError: x" in line["exception"]


# --- console ---


def test_a_console_log_has_no_colours_when_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    log, screen = written(monkeypatch, "console")
    log.info("ready", job="ml/mnist")
    fail(log)
    logging.getLogger("asyncio").error("slow")

    assert "[info     ] ready                          job=ml/mnist" in screen.getvalue()
    assert "[error    ] slow" in screen.getvalue()
    assert ESCAPE not in screen.getvalue()


def test_a_console_log_has_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    log, screen = written(monkeypatch, "console", is_terminal=True)
    log.info("ready")

    assert ESCAPE in screen.getvalue()


def test_a_traceback_shows_no_values_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is the token of the API server."""
    log, screen = written(monkeypatch, "console", is_terminal=True)
    fail(log)

    assert "ZeroDivisionError" in screen.getvalue()
    assert 'secret = "Bearer abc123"  # noqa' not in screen.getvalue()
    assert "'Bearer abc123'" not in screen.getvalue()


# --- which ---


@pytest.mark.parametrize(
    ("is_terminal", "is_json"), [pytest.param(True, False, id="terminal"), pytest.param(False, True, id="no terminal")]
)
def test_auto_is_console_on_a_terminal(monkeypatch: pytest.MonkeyPatch, is_terminal: bool, is_json: bool) -> None:
    log, screen = written(monkeypatch, "auto", is_terminal=is_terminal)
    log.info("ready")

    assert screen.getvalue().startswith("{") == is_json


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [pytest.param(0, False, id="default"), pytest.param(3, False, id="3"), pytest.param(4, True, id="4")],
)
def test_actions_are_shown_from_verbosity_4_on(monkeypatch: pytest.MonkeyPatch, verbosity: int, shown: bool) -> None:
    log, screen = written(monkeypatch, "json", verbosity)
    log.debug("create", because="a worker has no pod")

    assert bool(screen.getvalue()) == shown


# --- where ---


def test_a_log_can_go_to_a_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "log") as journal:
        configure_logging("auto", 0, journal)
        structlog.get_logger("test").info("ready")
        assert json.loads((tmp_path / "log").read_text())["event"] == "ready"


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    with Journal(Path("/dev/full")) as journal:
        configure_logging("json", 0, journal)
        structlog.get_logger("test").info("ready")
        logging.getLogger("asyncio").error("slow")


# --- a reader that stops reading ---


class Pipe:
    """A real pipe in the place of stderr."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reader, writer = os.pipe()
        self._reader = os.fdopen(reader)
        monkeypatch.setattr(sys, "stderr", stderr := os.fdopen(writer, "w"))
        self._stderr = stderr

    def lines(self) -> list[dict[str, Any]]:
        """All that was written; the pipe is closed."""
        with self._reader, ThreadPoolExecutor(1) as pool:
            text = pool.submit(self._reader.read)
            assert flush_logging(timeout=60)
            self._stderr.close()
            return [json.loads(line) for line in text.result().splitlines()]


async def log_much(count: int) -> int:
    """Log lines of 1 KiB beside a task that counts how often it was its turn."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    log = structlog.get_logger("test")
    for number in range(count):
        log.info("line", number=number, padding="x" * 1024)
        await asyncio.sleep(0)
    counting.cancel()
    return turns


async def test_the_loop_goes_on_while_the_log_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe(monkeypatch)
    configure_logging("json", 0)
    count = 3 * QUEUED_BYTES // 1024

    assert await log_much(count) >= count
    assert not flush_logging(timeout=0.01)

    lines = await asyncio.to_thread(pipe.lines)
    written = [line["number"] for line in lines if line["event"] == "line"]
    assert written == sorted(written)
    assert QUEUED_BYTES // 2048 < len(written) < count
    (report,) = [line for line in lines if "dropped" in line["event"]]
    assert (report["level"], report["lines"]) == ("warning", count - len(written))


async def test_lines_keep_their_order_and_none_is_lost_while_the_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe(monkeypatch)
    configure_logging("json", 0)
    await log_much(200)
    logging.getLogger("asyncio").error("slow")

    lines = await asyncio.to_thread(pipe.lines)
    assert [line.get("number") for line in lines] == [*range(200), None]


def test_what_was_logged_is_written_before_the_process_ends() -> None:
    script = """
import structlog
from trainmaster.cli.log import configure_logging
configure_logging("json", 0)
for number in range(1000):
    structlog.get_logger("test").info("line", number=number)
raise SystemExit(3)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ended.returncode == 3
    assert [json.loads(line)["number"] for line in ended.stderr.splitlines()] == list(range(1000))


def test_a_log_whose_reader_has_gone_costs_lines_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as raw:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, write_through=True))
        configure_logging("json", 0)
        log = structlog.get_logger("test")
        log.info("first")
        assert flush_logging(timeout=60)
        log.info("second")
        assert flush_logging(timeout=60)
