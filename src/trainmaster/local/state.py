"""The state folder: everything that a local cluster stores on disk, readable by its user only.

The file ``lock`` is held by the process that uses the folder and contains its pid.
"""

import base64
import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from trainmaster.core.errors import BadConfig
from trainmaster.local import lock
from trainmaster.local.disk import remove_folder, write_whole
from trainmaster.local.kept_run import RUNS

MEMORY = ":memory:"

_PRIVATE = 0o700
# The certificate is used on this machine only, so it practically never expires.
_VALID = timedelta(days=36500)
_CLOCK_SLACK = timedelta(days=1)
_LOCK = "lock"
# Names that no state folder of a user has: what is left of them is removed.
_RUN = "trainmaster-run-"
_RUN_LOCK = "run.lock"
_STARTING_SECONDS = 60.0


class State(msgspec.Struct, frozen=True):
    """The files of one folder. ``keeps`` is False for a run, whose objects are in memory."""

    folder: Path
    keeps: bool = True

    @property
    def database(self) -> str:
        return str(self.folder / "objects.db") if self.keeps else MEMORY

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    @property
    def key(self) -> Path:
        return self.folder / "key.pem"

    @property
    def node(self) -> Path:
        return self.folder / "node"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def log(self) -> Path:
        return self.folder / "operator.log"

    @property
    def server_port(self) -> int:
        """The last port of di-server; 0 if there was none."""
        try:
            text = self._server_port_file.read_text()
        except OSError:
            return 0
        return int(text) if text.isdecimal() and int(text) < 65536 else 0

    def keep_server_port(self, port: int) -> None:
        if port != self.server_port:
            with _errors_as_bad_config(self.folder):
                _write(self._server_port_file, str(port).encode())

    @property
    def _server_port_file(self) -> Path:
        return self.folder / "server-port"

    @property
    def token_file(self) -> Path:
        return self.folder / "token"

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    def write_kubeconfig(self, url: str, namespace: str) -> None:
        """Writes a self-contained kubeconfig that only this user can read."""
        with _errors_as_bad_config(self.folder):
            config = _kubeconfig(url, namespace, self.certificate.read_bytes(), self.token)
            _write(self.kubeconfig, msgspec.json.format(msgspec.json.encode(config)))

    def prepare(self) -> None:
        """Creates the files that are missing in the folder."""
        self.node.mkdir(mode=_PRIVATE, exist_ok=True)
        if not self.token_file.exists():
            _write(self.token_file, secrets.token_urlsafe(32).encode())
        if not self.certificate.exists():  # written last: if it exists, its key exists, too
            certificate, key = self_signed(datetime.now(UTC))
            _write(self.key, key)
            _write(self.certificate, certificate)

    def purge(self) -> None:
        """Removes our files. Logs of runs and other files in the folder are kept, and the folder with them."""
        with _errors_as_bad_config(self.folder):
            shutil.rmtree(self.node, ignore_errors=True)
            ours = (self.certificate, self.key, self.kubeconfig, self.log, self.token_file, self._server_port_file)
            for path in (*self.folder.glob("objects.db*"), *ours, self.folder / _LOCK):
                path.unlink(missing_ok=True)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()


def default_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base else Path.home() / ".local" / "state") / "trainmaster"


@contextmanager
def open_state(folder: Path) -> Iterator[State]:
    """Creates the folder if needed, and locks it until the block ends."""
    folder = folder.absolute()
    state = State(folder)
    with contextlib.ExitStack() as held:
        with _errors_as_bad_config(folder):
            _make(folder)
            held.enter_context(_locked(folder))
            state.prepare()
        yield state


@contextmanager
def temporary_state(*, keep: bool) -> Iterator[State]:
    """A folder for one run. It is removed at the end, unless ``keep`` is set; if this process is killed, by the next
    run."""
    place = Path(tempfile.gettempdir())
    with _errors_as_bad_config(place):
        _remove_left(place)
        folder = Path(tempfile.mkdtemp(prefix=_RUN))
    try:
        state = State(folder, keeps=False)
        with contextlib.ExitStack() as held:
            with _errors_as_bad_config(folder):
                if not keep:
                    held.enter_context(lock.locked(folder / _RUN_LOCK))
                state.prepare()
            yield state
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_left(place: Path) -> None:
    """Removes the folders of runs that were killed. A folder to keep has no lock file."""
    for file in place.glob(f"{_RUN}*/{_RUN_LOCK}"):
        with contextlib.suppress(OSError):
            status = file.parent.lstat()
            is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            is_old = time.time() - file.lstat().st_mtime > _STARTING_SECONDS  # a new file is locked in a moment
            if is_ours and is_old and lock.holder_of(file) is None:
                remove_folder(file.parent)


def holder_of(folder: Path) -> int | None:
    """The pid of the process that uses the folder; None if there is none, 0 if it has not written its pid yet."""
    return lock.holder_of(folder / _LOCK)


def is_state(folder: Path) -> bool:
    return (folder / _LOCK).is_file()


def _make(folder: Path) -> None:
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise BadConfig(f"state folder {folder} belongs to another user; choose your own with --state DIR")
    if not is_state(folder) and any(path.name != RUNS for path in folder.iterdir()):
        raise BadConfig(f"{folder} holds other files and is not a state folder; choose an empty one with --state DIR")
    folder.chmod(_PRIVATE)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        with lock.locked(folder / _LOCK):
            yield
    except lock.Taken as taken:
        raise BadConfig(
            f"state folder {folder} is in use by process {taken.holder or '(starting)'}; "
            "stop that one with `trainmaster down`, or choose another folder with --state DIR"
        ) from None


def _write(path: Path, content: bytes) -> None:
    write_whole(path, content, durable=True)


_ADVICE = {
    errno.ENOSPC: "free some space on it",
    errno.EDQUOT: "free some space on it",
}


@contextmanager
def _errors_as_bad_config(folder: Path) -> Iterator[None]:
    """Turns errors of the disk into a BadConfig with advice."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "make it writable")
        raise BadConfig(
            f"state folder {folder}: {(error.strerror or str(error)).lower()} "
            f"({error.filename or 'while writing'}); {advice}, or choose another folder"
        ) from error


def self_signed(now: datetime) -> tuple[bytes, bytes]:
    """A certificate for 127.0.0.1 and localhost, and its key, both PEM."""
    # Imported here: most starts find a certificate and do not need cryptography.
    from ipaddress import IPv4Address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainmaster on this machine")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + _VALID)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)


def _kubeconfig(url: str, namespace: str, certificate: bytes, token: str) -> dict[str, Any]:
    name = "trainmaster"
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(certificate).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
