from pathlib import Path

import pytest

from trainmaster.cli.tail import CHUNK, LONGEST_LINE, Line, Piece, Tail, Tails

UID = "u-1"


def entry(text: str, *, second: int = 0, tag: str = "F") -> str:
    return f"2026-11-15T12:00:{second:02}.000000000Z stdout {tag} {text}\n"


def log_of(folder: Path, container: str = "main", attempt: int = 0, uid: str = UID) -> Path:
    place = folder / "pods" / uid / "containers" / container / str(attempt)
    place.mkdir(parents=True, exist_ok=True)
    return place / "log"


def append(file: Path, text: str) -> None:
    with file.open("a") as out:
        out.write(text)


def rotate(file: Path) -> None:
    if (one := file.with_name("log.1")).exists():
        one.replace(file.with_name("log.2"))
    file.replace(one)


def texts(found: list[Piece]) -> list[str]:
    """The lines that are shown."""
    return [piece.text for piece in found if piece.text is not None]


def raw(found: list[Piece]) -> bytes:
    """What log files keep."""
    return b"".join(piece.raw for piece in found)


def shown(found: list[Line]) -> list[Line]:
    return [line for line in found if line.text is not None]


# --- one file ---


def test_every_line_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = Tail(file)
    assert tail.read() == []
    append(file, entry("one") + entry("two, and  more "))
    assert texts(tail.read()) == ["one", "two, and  more "]
    assert tail.read() == []
    append(file, entry("three"))
    assert texts(tail.read()) == ["three"]


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = Tail(file)
    whole = entry("eins")
    append(file, whole[:40])
    assert tail.read() == []
    append(file, whole[40:])
    assert texts(tail.read()) == ["eins"]


def test_a_long_line_in_parts_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = Tail(file)
    append(file, entry("a", tag="P") + entry("b", tag="P") + entry("c") + entry("x", tag="P") + entry("y"))
    assert texts(tail.read()) == ["abc", "xy"]


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = Tail(file)
    append(file, entry("one") + entry("two", tag="P"))
    assert texts(tail.finish()) == ["one", "two"]
    assert tail.finish() == []


@pytest.mark.parametrize("turns", [1, 2])
def test_a_rotated_log_is_continued_at_the_same_place(tmp_path: Path, turns: int) -> None:
    file = tmp_path / "log"
    tail = Tail(file)
    append(file, entry("a"))
    tail.read()
    append(file, entry("b"))
    for turn in range(turns):
        rotate(file)
        append(file, entry(f"c{turn}"))
    assert texts(tail.read()) == ["b", *(f"c{turn}" for turn in range(turns))]


def test_a_log_whose_current_file_was_deleted_continues_with_the_oldest_file_left(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = Tail(file)
    append(file, entry("a"))
    tail.read()
    for turn in range(4):  # the disk uses the number of a file that is gone for the next one
        rotate(file)
        append(file, entry(f"c{turn}", second=turn + 1))
    assert texts(tail.read()) == ["c1", "c2", "c3"]


def test_a_flood_is_read_in_portions_and_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "log"
    count = 2 * CHUNK // 1000
    append(file, "".join(entry(f"{number} {'x' * 1000}") for number in range(count)))
    tail = Tail(file)
    found = tail.read()
    assert 0 < len(found) < count
    while tail.has_more:
        found += tail.finish()
    assert [int(text.split()[0]) for text in texts(found)] == list(range(count))


def test_the_oldest_file_is_deleted_when_it_was_read_and_not_before(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for turn in range(3):
        if turn:
            rotate(file)
        append(file, entry(f"{turn} {'x' * CHUNK}", second=turn))
    tail, oldest = Tail(file), tmp_path / "log.2"
    found = tail.read()
    assert oldest.exists()
    while tail.has_more:
        found += tail.read()

    assert not oldest.exists()
    assert (tmp_path / "log.1").exists()  # the shim may rename it at any time
    assert [text[:1] for text in texts(found)] == ["0", "1", "2"]


def test_beyond_the_most_lines_the_earlier_ones_are_counted_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = Tail(file, most=2)
    append(file, entry("a") + entry("b", tag="P") + entry("c") + entry("d") + entry("e", tag="P"))
    append(file, entry("f") + entry("g"))
    found = tail.read()

    assert raw(found) == b"a\nbc\nd\nef\ng\n"
    assert (texts(found), sum(piece.skipped for piece in found)) == (["ef", "g"], 3)


def test_bytes_that_are_no_text_do_not_stop_anything(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(entry("a").encode()[:-2] + b"\xff\n\n")
    assert texts(Tail(file).read()) == ["\ufffd", ""]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        pytest.param("\r10%\r20%", "20%", id="carriage return before each state, as tqdm"),
        pytest.param("10%\r20%\r", "20%", id="carriage return after each state, as apt and ninja"),
        pytest.param("windows\r", "windows", id="end of a line on Windows"),
        pytest.param("\r99%\r   \r", "99%", id="bar that erases itself"),
        pytest.param("\r\r", "", id="nothing else"),
        pytest.param("  two, and  more ", "  two, and  more ", id="no bar"),
    ],
)
def test_the_newest_state_of_a_bar_is_shown_and_all_of_it_is_kept(tmp_path: Path, line: str, text: str) -> None:
    file = tmp_path / "log"
    file.write_bytes(entry(line).encode())
    found = Tail(file).read()

    assert texts(found) == [text]
    assert raw(found) == f"{line}\n".encode()


def test_the_newest_state_of_a_bar_is_found_across_stored_parts(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"".join(entry(part, tag="P").encode() for part in ("\r10%\r2", "0", "%")) + entry("!").encode())

    assert texts(Tail(file).read()) == ["20%!"]


def test_log_files_keep_the_bytes_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "log"
    text = "half a \u00e4".encode()
    file.write_bytes(entry("", tag="P").encode()[:-1] + text[:-1] + b"\n" + entry("").encode()[:-1] + text[-1:] + b"\n")
    append(file, entry("no end", tag="P"))
    found = Tail(file).finish()

    assert texts(found) == ["half a \u00e4", "no end"]
    assert raw(found) == text + b"\nno end"


def test_a_line_without_end_is_shown_in_pieces_and_not_kept_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "log"
    tail = Tail(file)
    part, count = "x" * 16384, 3 * LONGEST_LINE // 16384
    found: list[Piece] = []
    for _ in range(count):
        append(file, entry(part, tag="P"))
        found += tail.read()

    assert [len(text) for text in texts(found)] == [LONGEST_LINE] * 3
    assert len(raw(found)) == 3 * LONGEST_LINE


# --- a line that has not ended ---


def begin(file: Path, text: str, *, second: int = 0) -> None:
    """As the shim does it."""
    new = file.with_name("unfinished.new")
    new.write_bytes(entry(text, second=second, tag="P").encode()[:-1])
    new.replace(file.with_name("unfinished"))


def opened(found: list[Piece]) -> list[tuple[str | None, bool]]:
    """The unfinished lines, and whether they are progress bars."""
    return [(piece.text, piece.is_bar) for piece in found if piece.is_open]


def test_an_unfinished_line_is_read_once_for_each_of_its_states(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.touch()
    tail = Tail(file)
    begin(file, "\r10%")
    assert opened(tail.read()) == [("10%", True)]
    assert tail.read() == []
    begin(file, "\r20%\r")
    found = tail.read()
    assert opened(found) == [("20%", True)]
    assert raw(found) == b"", "its bytes come with its end"


def test_an_unfinished_line_without_carriage_return_is_no_bar(tmp_path: Path) -> None:
    file = tmp_path / "log"
    begin(file, "loading ...")
    assert opened(Tail(file).read()) == [("loading ...", False)]


def test_an_unfinished_line_that_is_blank_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "log"
    begin(file, "\r   \r")
    assert Tail(file).read() == []


def test_an_unfinished_line_is_old_after_the_end_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    begin(file, "\r10%", second=1)
    append(file, entry("end", second=2))
    found = Tail(file).read()

    assert (texts(found), opened(found)) == (["end"], [])


def test_an_unfinished_line_is_read_after_all_earlier_lines(tmp_path: Path) -> None:
    file = tmp_path / "log"
    append(file, "".join(entry("x" * 1000) for _ in range(2 * CHUNK // 1000)))
    begin(file, "\r10%", second=1)
    tail = Tail(file)
    first = tail.read()

    assert opened(first) == []
    while more := tail.read():
        last = more
    assert last[-1].is_open


def test_at_the_end_an_unfinished_line_is_shown_as_a_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    begin(file, "\r10%")
    append(file, entry("\r5%\r10%", second=1, tag="P"))
    found = Tail(file).finish()

    assert (texts(found), opened(found)) == (["10%"], [])


# --- all of them ---


def test_a_log_without_lines_is_found_too(tmp_path: Path) -> None:
    log_of(tmp_path).touch()
    tails = Tails(tmp_path)
    tails.see(UID)

    assert tails.read() == [Line("", UID, "main", 0)]
    assert tails.read() == []


def test_lines_of_several_logs_are_sorted_by_time(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    append(log_of(tmp_path, uid="a"), entry("1", second=1) + entry("3", second=3))
    append(log_of(tmp_path, uid="b"), entry("2", second=2))
    tails.see("a")
    tails.see("b")
    assert [(line.uid, line.text) for line in shown(tails.read())] == [("a", "1"), ("b", "2"), ("a", "3")]


def test_lines_of_one_log_keep_their_order_when_the_clock_steps_back(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    append(log_of(tmp_path), entry("1", second=9) + entry("2", second=1))
    tails.see(UID)
    assert [line.text for line in shown(tails.read())] == ["1", "2"]


def test_a_new_attempt_is_found_when_its_pod_changes(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    tails.see(UID)
    assert tails.read() == []
    append(log_of(tmp_path), entry("first"))
    assert [(line.container, line.attempt, line.text) for line in shown(tails.read())] == [("main", 0, "first")]
    append(log_of(tmp_path, attempt=1), entry("second"))
    tails.see(UID)
    assert [(line.container, line.attempt, line.text) for line in shown(tails.read())] == [("main", 1, "second")]


def test_at_the_end_nothing_is_left_unread(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    append(log_of(tmp_path), entry("first"))
    tails.see(UID)
    tails.read()
    append(log_of(tmp_path, container="other"), entry("late", tag="P"))
    assert [(line.container, line.text) for line in shown(tails.finish())] == [("other", "late")]
