"""Reading logs, by tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.local.deleted_log import keep
from trainmaster.local.disk import remove_folder
from trainmaster.local.node.log import LogOptions, read_log, since_of
from trainmaster.local.node.shim import Log

LINES = {
    "log.2": "2026-01-01T00:00:00.000000000Z stdout F one\n2026-01-01T00:00:01.000000000Z stdout P tw\n",
    "log.1": "2026-01-01T00:00:02.000000000Z stdout F o\n2026-01-01T00:00:03.000000000Z stderr F three\n",
    "log": "2026-01-01T00:00:04.000000000Z stdout F four\n2026-01-01T00:00:05.000000000Z stdout P five",
}
ALL = "one\ntwo\nthree\nfour\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for name, text in LINES.items():
        (tmp_path / name).write_text(text)
    return tmp_path / "log"


async def read(log: Path, **options: Any) -> str:
    pieces = [piece async for piece in read_log(log, lambda: False, LogOptions(**options))]
    return b"".join(pieces).decode()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, ALL),
        ({"follow": True}, ALL),
        ({"tail": 0}, ""),
        ({"tail": 1}, "four\n"),
        ({"tail": 2}, "three\nfour\n"),
        ({"tail": 3}, "o\nthree\nfour\n"),
        ({"tail": 4}, "two\nthree\nfour\n"),
        ({"tail": 99}, ALL),
        ({"limit": 5}, "one\nt"),
        ({"limit": 0}, ""),
        ({"since": "2026-01-01T00:00:03.000000000Z"}, "three\nfour\n"),
        ({"tail": 1, "timestamps": True}, "2026-01-01T00:00:04.000000000Z four\n"),
    ],
)
async def test_options(log: Path, options: dict[str, Any], text: str) -> None:
    assert await read(log, **options) == text


async def test_carriage_returns_are_preserved(tmp_path: Path) -> None:
    texts = ["\r10%\r20%", "windows\r", "\r", "a \r b \r c d e"]
    (tmp_path / "log").write_bytes("".join(a_line(text) for text in texts).encode())

    assert await read(tmp_path / "log") == "".join(f"{text}\n" for text in texts)


@pytest.mark.parametrize("count", [1, 10, 1000, 5000, 20000])
async def test_tail_of_a_long_log(tmp_path: Path, count: int) -> None:
    lines = [f"2026-01-01T00:00:00.000000000Z stdout F line {number} F {'x' * 40}\n" for number in range(10000)]
    (tmp_path / "log").write_text("".join(lines))

    found = (await read(tmp_path / "log", tail=count)).splitlines()

    assert len(found) == min(count, len(lines))
    assert found[0].startswith(f"line {max(0, len(lines) - count)} ")


async def test_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert await read(tmp_path / "log") == ""


def rotate(log: Path, word: str = "six") -> None:
    """As the shim does it: the oldest goes, the others get the next number, a new one is begun."""
    for number in (2, 1):
        older = log.with_name(f"log.{number - 1}") if number > 1 else log
        if older.exists():
            older.replace(log.with_name(f"log.{number}"))
    log.write_text(a_line(word))


def a_line(word: str) -> str:
    return f"2026-01-01T00:00:06.000000000Z stdout F {word}\n"


def late_and_rotate(log: Path) -> None:
    with log.open("a") as target:
        target.write(f"\n{a_line('late')}")  # it ends the line that was begun
    rotate(log)


def rotate_twice(log: Path) -> None:
    late_and_rotate(log)
    rotate(log, "seven")


@pytest.mark.parametrize(
    ("meanwhile", "shown"),
    [
        pytest.param(rotate, ["four", "six"], id="after the last line was read"),
        pytest.param(late_and_rotate, ["four", "fivelate", "six"], id="after lines that nobody has read yet"),
        pytest.param(rotate_twice, ["four", "fivelate", "six", "seven"], id="twice between two looks"),
    ],
)
async def test_follower_loses_nothing_when_the_log_is_rotated(
    log: Path, meanwhile: Callable[[Path], None], shown: list[str]
) -> None:
    found: list[str] = []

    def is_open() -> bool:
        return len(found) < len(shown)

    async for piece in read_log(log, is_open, LogOptions(follow=True, tail=1)):
        if not found:
            meanwhile(log)
        found += piece.decode().split()

    assert found == shown


async def test_reader_loses_nothing_when_the_log_is_rotated_under_it(log: Path) -> None:
    found = ""
    async for piece in read_log(log, lambda: False, LogOptions()):
        if not found:
            late_and_rotate(log)  # the open file is deleted, and all others are renamed
        found += piece.decode()

    assert found.split() == ["one", "two", "three", "four", "fivelate", "six"]


# --- lines that are missing ---


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files are kept: in the first one there is room for three lines, in the others for two."""
    for module in ("shim", "log"):
        monkeypatch.setattr(f"trainmaster.local.node.{module}.LOG_FILES", 3)
    monkeypatch.setattr("trainmaster.local.node.shim.LOG_LIMIT", 130)


def write(log: Log, *numbers: int) -> None:
    for number in numbers:
        log.write(f"{number}\n".encode())


def missing(count: int) -> str:
    return f"[trainmaster: {count} lines are missing here;"


@pytest.mark.usefixtures("small")
async def test_log_says_at_its_top_how_many_lines_are_missing(tmp_path: Path) -> None:
    write(Log(str(tmp_path / "log")), *range(10))
    first, *others = (await read(tmp_path / "log")).splitlines()

    assert first.startswith(missing(5))
    assert others == ["5", "6", "7", "8", "9"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("count", range(6))
async def test_last_lines_that_are_there_say_nothing_about_missing_ones(tmp_path: Path, count: int) -> None:
    write(Log(str(tmp_path / "log")), *range(10))

    assert (await read(tmp_path / "log", tail=count)).splitlines() == ["5", "6", "7", "8", "9"][5 - count :]


@pytest.mark.usefixtures("small")
async def test_follower_that_is_too_late_is_told_how_many_lines_it_missed(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    write(log, 0)
    found: list[str] = []

    def is_open() -> bool:
        return "19" not in found

    async for piece in read_log(tmp_path / "log", is_open, LogOptions(follow=True)):
        if not found:
            write(log, *range(1, 20))
        found += piece.decode().splitlines()

    gap = next(place for place, line in enumerate(found) if not line.isdigit())
    before, after = found[:gap], found[gap + 1 :]
    assert before == [str(number) for number in range(len(before))]
    assert found[gap].startswith(missing(20 - len(before) - len(after)))
    assert after == [str(number) for number in range(20 - len(after), 20)]


@pytest.mark.usefixtures("small")
async def test_follower_that_keeps_up_is_told_nothing(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    write(log, 0)
    found: list[str] = []

    def is_open() -> bool:
        return len(found) < 30

    async for piece in read_log(tmp_path / "log", is_open, LogOptions(follow=True)):
        found += piece.decode().splitlines()
        if len(found) < 30:
            write(log, len(found))

    assert found == [str(number) for number in range(30)]


async def test_log_of_a_deleted_pod_is_read_to_its_end(tmp_path: Path) -> None:
    pod = tmp_path / "pods" / "uid"
    attempt = pod / "containers" / "main" / "0"
    attempt.mkdir(parents=True)
    for name, text in LINES.items():
        (attempt / name).write_text(text)
    found = ""
    async for piece in read_log(attempt / "log", lambda: False, LogOptions()):
        if not found:
            keep(tmp_path, {"metadata": {"uid": "uid"}, "spec": {}}, pod)
            remove_folder(pod)
        found += piece.decode()

    assert found == ALL


@pytest.mark.parametrize(
    ("seconds", "moment", "since"),
    [
        ("", "", ""),
        ("10", "", "2026-01-01T00:00:00.000000000Z"),
        ("", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00.000000000Z"),
        ("", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.500000000Z"),
    ],
)
def test_since(seconds: str, moment: str, since: str) -> None:
    assert since_of(seconds, moment, 1767225610.0) == since
