"""Reading logs, by tables."""

from pathlib import Path
from typing import Any

import pytest

from trainmaster.embedded.node.log import LogOptions, read_log, since_of

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


@pytest.mark.parametrize("count", [1, 10, 1000, 5000, 20000])
async def test_tail_of_a_long_log(tmp_path: Path, count: int) -> None:
    lines = [f"2026-01-01T00:00:00.000000000Z stdout F line {number} F {'x' * 40}\n" for number in range(10000)]
    (tmp_path / "log").write_text("".join(lines))

    found = (await read(tmp_path / "log", tail=count)).splitlines()

    assert len(found) == min(count, len(lines))
    assert found[0].startswith(f"line {max(0, len(lines) - count)} ")


async def test_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert await read(tmp_path / "log") == ""


def rotate(log: Path) -> None:
    log.rename(log.with_name("log.1"))
    log.write_text("2026-01-01T00:00:06.000000000Z stdout F six\n")


async def test_follower_goes_on_after_a_rotation(log: Path) -> None:
    found: list[bytes] = []
    async for piece in read_log(log, lambda: len(found) < 2, LogOptions(follow=True, tail=1)):
        found.append(piece)
        if len(found) == 1:
            rotate(log)

    assert found == [b"four\n", b"six\n"]


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
