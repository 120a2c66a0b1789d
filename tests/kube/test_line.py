"""trainmaster.kube.line"""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.kube.line import LineBuffer


def fed(chunks: list[bytes]) -> tuple[list[bytes], int]:
    buffer = LineBuffer()
    lines = [line for chunk in chunks for line in buffer.feed(chunk)]
    return lines, buffer.pending


def test_next_line_and_line_separator_characters_do_not_end_a_line() -> None:
    line = '{"message":"a\u0085b\u2028c\u2029d\x0ce\\rf"}'.encode()

    assert fed([line + b"\n"]) == ([line], 0)


def test_character_may_be_split_across_chunks() -> None:
    line = '"\u0085\u2028"'.encode()

    assert fed([bytes([byte]) for byte in line + b"\n"]) == ([line], 0)


def test_blank_lines_are_left_out() -> None:
    assert fed([b"\n", b"a\n\nb\n", b"\n"]) == ([b"a", b"b"], 0)


def test_unfinished_line_is_kept_back_and_counted() -> None:
    assert fed([b"a\nbc", b"d"]) == ([b"a"], 3)


@given(lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), cuts=st.lists(st.integers(0, 300)))
def test_lines_do_not_depend_on_where_chunks_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    chunks = [stream[start:end] for start, end in itertools.pairwise(places)]

    assert fed(chunks) == (lines, 0)
