"""What of a difference between a document and a program is one."""

import pytest

from tests.newcomer.document import difference

RUN = "worker-0 | a\nworker-1 | b\nworker-0 | c\ndone in 3s\n"


@pytest.mark.parametrize(
    "said",
    [
        ["worker-0 | a", "worker-0 | c", "worker-1 | b", "done in 1m20s"],
        ["worker-0 | a", "…", "done in 2s"],
        ["…", "done   in …"],
        ["…"],
    ],
)
def test_a_document_may_shorten_and_mix_the_lines_of_replicas(said: list[str]) -> None:
    assert difference(said, RUN) == ""


@pytest.mark.parametrize(
    "said",
    [
        ["worker-0 | c", "worker-0 | a", "worker-1 | b", "done in 3s"],
        ["worker-0 | a", "worker-0 | c", "done in 3s"],
        ["worker-0 | a", "…", "failed"],
        ["…", "worker-2 | d", "…"],
        ["done in 3s"],
        ["done"],
    ],
)
def test_a_line_that_is_not_printed_or_in_another_order_or_more_is_a_difference(said: list[str]) -> None:
    assert "the document says" in difference(said, RUN)
