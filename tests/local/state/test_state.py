import errno
import os
import ssl
import stat
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from trainmaster.core.errors import BadConfig
from trainmaster.local import state as subject
from trainmaster.local.state import State, default_folder, holder_of, is_state, open_state, temporary_state

NOW = datetime(2026, 11, 15, tzinfo=UTC)

HOLD = """
import sys
from pathlib import Path
from trainmaster.local.state import open_state
with open_state(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def hold(folder: Path) -> subprocess.Popen[str]:
    """Another process, which has the folder by the time this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


# --- where ---


def test_the_default_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert default_folder() == Path("/home/ada/.local/state/trainmaster")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/ada")
    assert default_folder() == Path("/var/ada/trainmaster")


# --- what is in it ---


def test_everything_is_for_its_owner_alone(tmp_path: Path) -> None:
    with open_state(tmp_path / "new" / "state") as state:
        state.write_kubeconfig("https://127.0.0.1:1", "default")

    assert mode_of(state.folder) == mode_of(state.node) == 0o700
    files = [path for path in state.folder.iterdir() if path.is_file()]
    assert {path.name for path in files} == {"lock", "token", "certificate.pem", "key.pem", "kubeconfig"}
    assert {mode_of(path) for path in files} == {0o600}


def test_a_folder_that_others_could_read_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    with open_state(folder):
        assert mode_of(folder) == 0o700


def test_the_second_start_uses_the_files_of_the_first(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as state:
        made = state.token, state.certificate.read_bytes(), state.key.read_bytes()
    with open_state(tmp_path / "state") as state:
        assert (state.token, state.certificate.read_bytes(), state.key.read_bytes()) == made


def test_a_key_without_its_certificate_is_created_again_with_it(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as state:
        state.certificate.unlink()
        old = state.key.read_bytes()
    with open_state(tmp_path / "state") as state:
        assert state.key.read_bytes() != old
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(state.certificate, state.key)


def test_the_certificate_is_for_this_machine_and_lasts() -> None:
    certificate = x509.load_pem_x509_certificate(subject.self_signed(NOW)[0])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert certificate.not_valid_before_utc < NOW
    assert certificate.not_valid_after_utc.year > NOW.year + 50


def test_the_kubeconfig_needs_no_other_file(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as state:
        state.write_kubeconfig("https://127.0.0.1:4711", "ml")
        config = msgspec.json.decode(state.kubeconfig.read_bytes())

    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:4711"
    assert config["users"][0]["user"] == {"token": state.token}
    assert config["contexts"][0]["context"]["namespace"] == "ml"
    assert str(tmp_path) not in str(config)


# --- one at a time ---


def test_the_second_process_gets_an_error_with_the_pid_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with hold(folder) as other:
        assert holder_of(folder) == other.pid
        with pytest.raises(BadConfig, match=f"in use by process {other.pid}; stop that one with `trainmaster down`"):
            open_state(folder).__enter__()
        other.kill()
    assert holder_of(folder) is None
    with open_state(folder):
        assert holder_of(folder) == os.getpid()


def test_a_missing_folder_has_no_holder(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "nothing") is None


# --- a run's own ---


@pytest.mark.parametrize("keep", [True, False])
def test_a_run_has_a_folder_of_its_own_and_its_objects_in_memory(
    keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_state(keep=keep) as state:
        assert state.database == ":memory:"
        assert mode_of(state.folder) == 0o700
        assert state.token
    assert state.folder.exists() == keep


def test_folders_of_killed_runs_are_removed_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name, file in (("run-killed", "run.lock"), ("run-starting", "run.lock"), ("run-kept", "token"), ("up", "lock")):
        (tmp_path / f"trainmaster-{name}").mkdir()
        (tmp_path / f"trainmaster-{name}" / file).touch()
    old = time.time() - 3600
    for name, file in (("run-killed", "run.lock"), ("run-kept", "token"), ("up", "lock")):
        os.utime(tmp_path / f"trainmaster-{name}" / file, (old, old))
    with temporary_state(keep=False) as running:
        os.utime(running.folder / "run.lock", (old, old))
        with temporary_state(keep=False):
            left = sorted(path.name.removeprefix("trainmaster-") for path in tmp_path.iterdir())
            assert running.folder.exists()

    assert [name for name in left if not name.startswith("run-") or name in ("run-starting", "run-kept")] == [
        "run-kept",
        "run-starting",
        "up",
    ]
    assert "run-killed" not in left


# --- when the disk does not play along ---


@pytest.mark.parametrize(
    ("number", "said"),
    [
        pytest.param(errno.ENOSPC, "no space left on device .*; free some space on it", id="full"),
        pytest.param(errno.EROFS, "read-only file system .*; make it writable", id="read-only"),
    ],
)
def test_a_disk_error_has_a_message_and_leaves_no_partial_file(
    number: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_state(tmp_path / "state") as state:
        state.write_kubeconfig("https://127.0.0.1:1", "old")
    before = {path: path.read_bytes() for path in state.folder.iterdir() if path.is_file()}

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with open_state(state.folder) as state, monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(BadConfig, match=said):
            state.write_kubeconfig("https://127.0.0.1:1", "new")
    assert {path: path.read_bytes() for path in state.folder.iterdir() if path.is_file()} == before


def test_a_path_that_is_not_a_folder_has_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match=r"state folder .*/file: file exists"):
        open_state(tmp_path / "file").__enter__()


def test_a_folder_with_other_things_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(BadConfig, match="holds other files and is not a state folder"):
        open_state(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert not is_state(tmp_path)


# --- purge ---


def test_purging_removes_the_folder(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as state:
        Path(state.database).touch()
        Path(f"{state.database}-wal").touch()
        (state.node / "pods").mkdir()
        state.purge()
    assert not state.folder.exists()


def test_purging_keeps_foreign_files(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as state:
        (state.folder / "thesis.tex").write_text("all my work")
        state.purge()
    assert [path.name for path in State(state.folder).folder.iterdir()] == ["thesis.tex"]
