"""The image that is built without docker: what the Dockerfile says, byte for byte the same each time."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.image import archive, base, dockerfile, environment, layer
from deploy.image.build import Built, build, epoch
from testbed.operator import REPOSITORY
from tests.deploy.test_image import instructions

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def words_of(instruction: str) -> list[str]:
    """The words of an instruction of the Dockerfile's last stage; test_image's parser is the second source."""
    return [words for name, words in instructions() if name == instruction][-1]


class Archive:
    """An OCI archive, read as its specification says."""

    def __init__(self, file: Path) -> None:
        self._tar = tarfile.open(fileobj=io.BytesIO(file.read_bytes()))  # noqa: SIM115 – memory
        [described] = self.json("index.json")["manifests"]
        self.described = described
        self.manifest = self.json(self.path(described["digest"]))
        self.config = self.json(self.path(self.manifest["config"]["digest"]))

    def path(self, digest: str) -> str:
        return f"blobs/{digest.replace(':', '/')}"

    def bytes(self, name: str) -> bytes:
        content = self._tar.extractfile(name)
        assert content is not None
        return content.read()

    def json(self, name: str) -> Any:
        return json.loads(self.bytes(name))

    def layer(self, index: int) -> tarfile.TarFile:
        return tarfile.open(fileobj=io.BytesIO(self.bytes(self.path(self.manifest["layers"][index]["digest"]))))


def small_base(file: Path, *, newest_first: bool = False) -> Path:
    """A root file system with the least that a base has, and with what a build leaves behind."""
    files = {
        "./etc/passwd": b"root:x:0:0::/:/bin/sh\n",
        f"./usr/bin/python{PYTHON}": b"",
        "./usr/share/doc/libc6/changelog.gz": b"long",
        "./usr/share/doc/libc6/copyright": b"LGPL",
        "./var/cache/ldconfig/aux-cache": os.urandom(8),
        "./var/lib/dpkg/status": STATUS.encode(),
        "./var/log/dpkg.log": os.urandom(8),
    }
    with tarfile.open(file, "w") as tar:
        for name in sorted(files, reverse=newest_first):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.uname = len(files[name]), 2_000_000_000 + newest_first, os.urandom(2).hex()
            tar.addfile(info, io.BytesIO(files[name]))
        for name, kind, target in (
            ("./usr/bin/python3", tarfile.SYMTYPE, f"python{PYTHON}"),
            ("./bin/again", tarfile.LNKTYPE, "./etc/passwd"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    return file


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Built, Built]]:
    """Two builds on one base, whose tar files differ in everything that does not count."""
    folder = tmp_path_factory.mktemp("oci")
    before = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    first = build(folder / "first", small_base(folder / "a.tar"))
    second = build(folder / "second", small_base(folder / "b.tar", newest_first=True))
    yield first, second
    if before is None:
        del os.environ["SOURCE_DATE_EPOCH"]
    else:
        os.environ["SOURCE_DATE_EPOCH"] = before


@pytest.mark.long
def test_two_builds_give_one_digest_and_the_same_bytes(twice: tuple[Built, Built]) -> None:
    first, second = twice

    assert first.digest == second.digest
    assert first.archive.read_bytes() == second.archive.read_bytes()
    assert first.sbom.read_bytes() == second.sbom.read_bytes()


@pytest.mark.long
def test_the_image_is_started_as_the_dockerfile_says(twice: tuple[Built, Built]) -> None:
    config = Archive(twice[0].archive).config["config"]
    env = dict(each.partition("=")[::2] for each in config["Env"])
    said = dict(word.partition("=")[::2] for word in words_of("ENV"))

    assert config["User"] == words_of("USER")[0]
    assert config["Entrypoint"] == [word.strip("[]") for word in words_of("ENTRYPOINT")]
    assert env.pop("PATH") == said.pop("PATH").replace("$PATH", base.PATH)
    assert env == said


@pytest.mark.long
def test_every_blob_has_its_digest_and_no_file_is_newer_than_the_commit(twice: tuple[Built, Built]) -> None:
    found = Archive(twice[0].archive)

    for described in (found.described, found.manifest["config"], *found.manifest["layers"]):
        content = found.bytes(found.path(described["digest"]))
        assert described["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert described["size"] == len(content)
    assert found.config["rootfs"]["diff_ids"] == [each["digest"] for each in found.manifest["layers"]]
    for index in range(2):
        members = found.layer(index).getmembers()
        assert [each.name for each in members] == sorted(each.name for each in members)
        assert max(each.mtime for each in members) <= 1700000000
        assert {each.uname for each in members} == {""}


@pytest.mark.long
def test_nothing_that_a_build_leaves_behind_is_in_the_base_and_licences_stay(twice: tuple[Built, Built]) -> None:
    names = set(Archive(twice[0].archive).layer(0).getnames())

    assert "usr/share/doc/libc6/copyright" in names
    assert not {"var/log/dpkg.log", "var/cache/ldconfig/aux-cache", "usr/share/doc/libc6/changelog.gz"} & names


@pytest.mark.long
def test_both_names_of_a_file_stay_one_file(twice: tuple[Built, Built]) -> None:
    tar = Archive(twice[0].archive).layer(0)

    assert tar.getmember("bin/again").isreg()
    assert tar.getmember("etc/passwd").islnk()
    assert tar.getmember("etc/passwd").linkname == "bin/again"
    content = tar.extractfile("etc/passwd")
    assert content is not None
    assert content.read().startswith(b"root:")


@pytest.mark.long
def test_docker_before_version_25_finds_the_same_image(twice: tuple[Built, Built]) -> None:
    found = Archive(twice[0].archive)
    [docker] = found.json("manifest.json")

    assert docker["RepoTags"] == ["trainmaster:0.1.0"]
    assert found.described["annotations"]["io.containerd.image.name"] == "docker.io/library/trainmaster:0.1.0"
    assert docker["Config"] == found.path(found.manifest["config"]["digest"])
    assert docker["Layers"] == [found.path(each["digest"]) for each in found.manifest["layers"]]


@pytest.mark.long
def test_the_list_of_contents_has_every_pinned_wheel_with_a_hash_of_its_pin(twice: tuple[Built, Built]) -> None:
    document = json.loads(twice[0].sbom.read_text())
    listed = {each["name"]: each for each in document["packages"] if each["SPDXID"].startswith("SPDXRef-wheel-")}
    blocks = re.split(r"(?m)^(?=[a-z])", environment.RUN.read_text())
    pinned = {block.partition("==")[0]: set(re.findall(r"sha256:(\w+)", block)) for block in blocks if "==" in block}

    own = listed.pop("trainmaster")
    assert own["versionInfo"] == "0.1.0"
    assert {name.lower().replace("_", "-") for name in listed} <= set(pinned)
    for name, each in listed.items():
        assert each["checksums"][0]["checksumValue"] in pinned[name.lower().replace("_", "-")]
    assert {"aiohttp", "uvloop"} <= set(listed)
    debian = [each["name"] for each in document["packages"] if each["SPDXID"].startswith("SPDXRef-deb-")]
    assert debian == ["libc6"]  # a package that was removed is not in the image
    contained = {each["relatedSpdxElement"] for each in document["relationships"]}
    assert contained == {each["SPDXID"] for each in document["packages"]}


@pytest.mark.long
def test_an_image_that_was_built_can_be_the_base_of_the_next(twice: tuple[Built, Built], tmp_path: Path) -> None:
    below = base.given(twice[0].archive, tmp_path, 0)

    assert [each.digest for each in below.layers] == [
        each["digest"] for each in Archive(twice[0].archive).manifest["layers"]
    ]
    assert below.env["PATH"].startswith("/opt/trainmaster/bin:")
    assert below.version == PYTHON


def test_a_base_without_python_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass

    with pytest.raises(base.ImageFailed, match="the base has no Python"):
        base.given(tmp_path / "empty.tar", tmp_path, 0)
    with pytest.raises(base.ImageFailed, match="does not exist"):
        base.given(tmp_path / "nowhere.tar", tmp_path, 0)


def test_a_damaged_base_is_refused(tmp_path: Path) -> None:
    content = layer.write([layer.Entry("usr/bin/python3", link="python3.11")], tmp_path / "layer", 0)
    file = tmp_path / "image.tar"
    archive.write(file, ["docker.io/library/x:1"], [content], archive.Config(env={}), 0)
    with tarfile.open(file) as tar:
        tar.extractall(tmp_path / "layout", filter="data")
    blob = tmp_path / "layout" / "blobs" / content.digest.replace(":", "/")
    blob.write_bytes(blob.read_bytes() + b"\0")

    with pytest.raises(base.ImageFailed, match="does not have its digest"):
        base.given(tmp_path / "layout", tmp_path, 0)


def test_variables_of_the_base_are_used_by_those_of_the_image() -> None:
    assert dockerfile.expand({"PATH": "/opt/bin:$PATH"}, {"PATH": "/bin", "LANG": "C"}) == {
        "PATH": "/opt/bin:/bin",
        "LANG": "C",
    }


@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="a base of Debian's packages needs root")
@pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed")
def test_two_builds_on_debians_packages_give_one_digest_and_a_command_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(epoch()))  # of one commit, also when another one comes in between
    first, second = (build(tmp_path / name) for name in ("first", "second"))
    assert first.digest == second.digest

    debian = [each for each in json.loads(first.sbom.read_text())["packages"] if "-deb-" in each["SPDXID"]]
    assert {"python3.11", "libc6"} <= {each["name"] for each in debian}
    assert all("checksums" in each for each in debian)

    root, found = tmp_path / "root", Archive(first.archive)
    for index in range(2):
        found.layer(index).extractall(root, filter="fully_trusted")
    run = ["/usr/sbin/chroot", "--userspec=65532:65532", str(root), "/opt/trainmaster/bin/trainmaster", "crds"]
    said = subprocess.run(run, env={}, capture_output=True, text=True, check=True).stdout
    assert said == (REPOSITORY / "deploy" / "crds.yaml").read_text()
