from pathlib import Path

from trainmaster.cli.archive import Archive
from trainmaster.cli.tail import Line


def line(text: str, *, uid: str = "u", container: str = "main", attempt: int = 0) -> Line:
    return Line("", uid, container, attempt, text, f"{text}\n".encode())


def written(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_a_file_has_the_bytes_that_were_written_not_the_text_that_is_shown(tmp_path: Path) -> None:
    lines = [Line("", "u", "main", 0, None, b"\r1\xff"), Line("", "u", "main", 0, "2", b"\r2\r\nno end")]
    Archive(tmp_path).put("job-a-0", lines)

    assert (tmp_path / "job-a-0.main.0.log").read_bytes() == b"\r1\xff\r2\r\nno end"


def test_a_container_that_wrote_nothing_has_an_empty_file(tmp_path: Path) -> None:
    Archive(tmp_path).put("job-a-0", [Line("", "u", "main", 0)])

    assert written(tmp_path) == {"job-a-0.main.0.log": ""}


def test_each_attempt_of_each_container_has_its_file(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "new" / "logs")
    archive.put("job-a-0", [line("one"), line("other", container="side"), line("two")])
    archive.put("job-a-0", [line("again", attempt=1), line("three")])

    assert written(archive.folder) == {
        "job-a-0.main.0.log": "one\ntwo\nthree\n",
        "job-a-0.main.1.log": "again\n",
        "job-a-0.side.0.log": "other\n",
    }


def test_a_pod_of_the_same_name_does_not_overwrite_its_predecessor(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.put("job-a-0", [line("old", uid="1")])
    archive.put("job-a-0", [line("new", uid="2")])

    assert written(tmp_path) == {"job-a-0.main.0.log": "old\n", "job-a-0.main.1.log": "new\n"}


def test_the_next_run_starts_its_files_anew(tmp_path: Path) -> None:
    for text in ("yesterday", "today"):
        Archive(tmp_path).put("job-a-0", [line(text)])

    assert written(tmp_path) == {"job-a-0.main.0.log": "today\n"}


def test_beyond_the_limit_the_older_half_of_the_largest_file_is_removed_with_a_note(tmp_path: Path) -> None:
    archive = Archive(tmp_path, limit=2000)
    archive.put("job-a-0", [line("short")])
    for number in range(500):
        archive.put("job-b-0", [line(f"line {number:03}", uid="b")])
    note, *lines = (tmp_path / "job-b-0.main.0.log").read_text().splitlines()

    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2000
    assert note == f"[trainmaster: {500 - len(lines)} earlier lines were removed; --logs DIR keeps all]"
    assert lines == [f"line {number:03}" for number in range(500 - len(lines), 500)]
    assert (tmp_path / "job-a-0.main.0.log").read_text() == "short\n"
