"""Small files are replaced as a whole; a folder goes whatever its rights."""

import errno
import os
import stat
from pathlib import Path

import pytest

from trainmaster.local.disk import remove_folder, write_whole


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_and_stays_private(tmp_path: Path, durable: bool) -> None:
    file = tmp_path / "token"
    write_whole(file, b"old", durable=durable)
    write_whole(file, b"new", durable=durable)

    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    write_whole(file, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"new", durable=True)

    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_temporary_file_of_a_killed_writer_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".token.new").write_bytes(b"half of")
    write_whole(tmp_path / "token", b"whole")

    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_folder_without_write_permission_is_removed(tmp_path: Path) -> None:
    inner = tmp_path / "volume" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(0o500)
    remove_folder(tmp_path / "volume")

    assert not (tmp_path / "volume").exists()
