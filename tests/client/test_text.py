"""Tables for people; ages and lines are tested with the live view."""

from trainmaster.client.text import table

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
