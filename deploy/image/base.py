"""What our layer lies on: Debian's packages with Python, or a base that is given."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deploy.image.layer import Layer, rewrite, sha256

PACKAGES = ("python3", "libstdc++6")
"""Beside the essential ones. A wheel for Linux may use libstdc++ without bringing it."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMEOUT = 900.0
_STATUS = "var/lib/dpkg/status"
_PYTHONS = ("usr/local/bin/python3", "usr/bin/python3")

# What a build leaves behind, what a container runtime mounts over, and what is of no use in a container.
_UNWANTED = re.compile(
    r"(?:dev|proc|sys|tmp|run|var/cache|var/log|var/lib/apt|usr/share/(?:man|info|locale|lintian))/.+"
    r"|usr/share/doc/.+/(?!copyright$)[^/]+"  # licences stay
    r"|var/lib/dpkg/.+-old|etc/(?:machine-id|hostname|resolv\.conf)|etc/.+-"
)


class ImageFailed(Exception):
    """The image could not be built; the message says what to do."""


class Package(NamedTuple):
    """A Debian package of the base; the hash is that of its file, where it is known."""

    name: str
    version: str
    architecture: str
    sha256: str = ""


class Base(NamedTuple):
    """The layers below ours."""

    layers: list[Layer]
    env: dict[str, str]
    python: str
    """The interpreter, as an absolute path."""
    version: str
    """Of Python: 3.11."""
    packages: list[Package]


def debian(scratch: Path, epoch: int) -> Base:
    """Debian's essential packages and Python, from where this machine's apt gets its packages."""
    tool = shutil.which("mmdebstrap")
    if tool is None or os.geteuid() != 0:
        raise ImageFailed(
            "a base of Debian's packages needs root and mmdebstrap (apt-get install mmdebstrap);"
            " or name one: make image BASE=rootfs.tar, or BASE=a folder or an archive with an OCI layout"
        )
    suite, lines = sources()
    tar, lists = scratch / "debian.tar", scratch / "Packages"
    command = [tool, "--mode=root", "--variant=essential", f"--include={','.join(PACKAGES)}", "--quiet"]
    # apt's lists have the hashes of the packages; they are removed with its cache.
    command += [f'--customize-hook=cat "$1"/var/lib/apt/lists/*_Packages > {lists}']
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [*command, suite, str(tar), *lines], env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode != 0:
        raise ImageFailed(f"mmdebstrap could not make the root file system: {done.stderr.strip()[-500:]}")
    return rootfs(tar, scratch, epoch, hashes=_hashes(lists.read_text()))


def sources() -> tuple[str, list[str]]:
    """The release of this machine and the lines of a sources.list for it."""
    release = dict(line.partition("=")[::2] for line in Path("/etc/os-release").read_text().splitlines())
    suite = release.get("VERSION_CODENAME", "").strip('"')
    asked = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
    found = sorted({tuple(line.split()) for line in said.splitlines()})
    lines = [f"deb {' '.join(each)}" for each in found if each[1] in {suite, f"{suite}-updates", f"{suite}-security"}]
    if not lines:
        raise ImageFailed(
            f"apt of this machine has no packages of {suite or 'its release'}; name a base: make image BASE=…"
        )
    return suite, lines


def rootfs(tar: Path, scratch: Path, epoch: int, hashes: dict[Package, str] | None = None) -> Base:
    """The content of a tar file as the one layer."""
    layer = rewrite(tar, scratch / "base.tar", epoch, lambda name: not _UNWANTED.fullmatch(name))
    return _read([layer], {"PATH": PATH}, hashes or {})


def oci(source: Path, scratch: Path) -> Base:
    """The layers of an image in an OCI layout: a folder, or a tar file of one."""
    if source.is_file():
        folder = scratch / "layout"
        with tarfile.open(source) as tar:
            tar.extractall(folder, filter="data")
        source = folder

    def blob(digest: str) -> Path:
        return source / "blobs" / Path(*digest.split(":"))

    [described] = _json(source / "index.json")["manifests"]
    manifest = _json(blob(described["digest"]))
    config = _json(blob(manifest["config"]["digest"]))
    layers = [
        Layer(blob(each["digest"]), each["digest"], diff_id, each["mediaType"])
        for each, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
    ]
    for layer in layers:
        if sha256(layer.file) != layer.digest:
            raise ImageFailed(f"the base is damaged: {layer.file} does not have its digest")
    env = dict(each.partition("=")[::2] for each in config["config"].get("Env", []))
    return _read(layers, {"PATH": PATH, **env}, {})


def given(source: Path, scratch: Path, epoch: int) -> Base:
    """A base by its path: an OCI layout, an archive of one, or a root file system."""
    if not source.exists():
        raise ImageFailed(f"the base {source} does not exist")
    if source.is_dir():
        return oci(source, scratch)
    with tarfile.open(source) as tar:
        is_layout = any(member.name.removeprefix("./") == "oci-layout" for member in tar)
    return oci(source, scratch) if is_layout else rootfs(source, scratch, epoch)


def packages(status: str) -> list[Package]:
    """The installed packages of a dpkg database."""
    return [
        Package(each["Package"], each["Version"], each["Architecture"])
        for each in _paragraphs(status)
        if each.get("Status", "").endswith(" installed")
    ]


def _read(layers: list[Layer], env: dict[str, str], hashes: dict[Package, str]) -> Base:
    links: dict[str, str] = {}
    status = ""
    for layer in layers:
        with tarfile.open(layer.file) as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in _PYTHONS:
                    links[name] = member.linkname
                if name == _STATUS and (content := tar.extractfile(member)):
                    status = content.read().decode()
    found = next((name for name in _PYTHONS if name in links), None)
    version = re.fullmatch(r"(?:.*/)?python(3\.\d+)", links[found]) if found else None
    if found is None or version is None:
        raise ImageFailed(f"the base has no Python: neither of {', '.join(_PYTHONS)} is a link to its version")
    installed = [each._replace(sha256=hashes.get(each, "")) for each in packages(status)]
    return Base(layers, env, f"/{found}", version[1], installed)


def _hashes(lists: str) -> dict[Package, str]:
    return {
        Package(each["Package"], each["Version"], each["Architecture"]): each["SHA256"] for each in _paragraphs(lists)
    }


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"(?m)^([\w-]+): (.*)$", paragraph))
        if "Package" in fields and "Version" in fields:
            yield fields


def _json(file: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(file.read_text())
    return body
