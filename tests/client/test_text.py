"""Tables for people, and what may reach their terminals; ages and lines are tested with the live view."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from trainmaster.client.text import duration, printable, table, to_json
from trainmaster.core.plain import plain, with_colours


def test_a_duration_is_for_sentences() -> None:
    start = datetime(2026, 11, 15, tzinfo=UTC)
    spans = (timedelta(seconds=12), timedelta(minutes=3, seconds=4), timedelta(hours=2, minutes=5), timedelta(days=3))
    assert [duration(start, start + span) for span in spans] == ["12 s", "3 min 4 s", "2 h 5 min", "3 d 0 h"]


HEAD = ("NAME", "PHASE", "MESSAGE")


def test_columns_have_the_width_of_their_longest_cell() -> None:
    assert table(HEAD, [("a", "Running", ""), ("longer", "Failed", "exit code 3")]).splitlines() == [
        "NAME    PHASE    MESSAGE",
        "a       Running",
        "longer  Failed   exit code 3",
    ]


def test_a_line_is_cut_at_the_width_of_the_terminal() -> None:
    assert table(HEAD, [("a", "Failed", "x" * 80)], 30).splitlines()[1] == "a     Failed  " + "x" * 15 + "…"


def test_text_of_others_cannot_control_the_terminal() -> None:
    assert table(HEAD, [("a", "Failed", "\x1b[2Jgone\nnext")]).splitlines()[1] == "a     Failed  gonenext"


BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""All characters with the property Bidi_Control of Unicode."""
HOSTILE = [
    pytest.param("\x1b]0;title\x07", id="OSC 0, the title of the window"),
    pytest.param("\x1b]52;c;cm0gLXJm\x1b\\", id="OSC 52, the clipboard"),
    pytest.param("\x1bP+q544e\x1b\\", id="DCS, a question to the terminal"),
    pytest.param("\x9d0;title\x9c", id="OSC as a C1 character"),
    pytest.param("\x1b[2J", id="CSI 2J, clears the screen"),
    pytest.param("\x1b[?1049h", id="CSI of the alternate screen"),
    pytest.param("\x9b2J", id="CSI as a C1 character"),
    pytest.param("\x1bc", id="ESC c, resets the terminal"),
    pytest.param("\x07\x08\x0b\x0c\x0d\x7f", id="C0 characters"),
    pytest.param(BIDI, id="bidi characters"),
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_a_program_wrote_cannot_control_a_terminal(hostile: str) -> None:
    assert plain(f"a{hostile}b") == with_colours(f"a{hostile}b") == "ab"
    assert printable(f"a{hostile}b".replace("\r", "")) == "ab"


def test_a_sequence_without_an_end_hides_no_text() -> None:
    assert plain("a\x1b]0;b") == with_colours("a\x1b]0;b") == "a0;b"


def test_colours_are_kept_for_a_terminal_and_end_with_their_line() -> None:
    red = "\x1b[1;31mloss\x1b[0m is \x1b[38:5:9mnan"
    assert with_colours(red) == f"{red}\x1b[0m"
    assert with_colours("\x1b[32mok\x1b[0m") == "\x1b[32mok\x1b[0m"
    assert plain(red) == "loss is nan"


def test_words_of_all_languages_and_tabs_stay() -> None:
    text = "Größe\t損失 خسارة 🚀 a\u200db"
    assert plain(text) == with_colours(text) == text


def test_json_has_such_characters_only_as_escapes() -> None:
    text = f"a\x9b2J{BIDI}b"
    assert to_json(text).isascii()
    assert json.loads(to_json(text)) == text


@pytest.mark.parametrize("opener", ["\x90", "\x98", "\x9d", "\x9e", "\x9f", "\x1b]", "\x1b[", "\x9b"])
def test_a_long_line_of_openings_without_an_end_is_read_once(opener: str) -> None:
    """With a second look at what follows each of them, this would take hours."""
    assert "\x1b" not in plain(opener * 1_000_000)
