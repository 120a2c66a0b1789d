from pathlib import Path

import pytest

from trainmaster.cli.archive import Archive
from trainmaster.cli.tail import Line
from trainmaster.core.errors import BadConfig


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


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match=r"--logs .*/file/logs: Not a directory; choose another folder"):
        Archive(tmp_path / "file" / "logs")
