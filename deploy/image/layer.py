"""Layers: tar files whose bytes depend on their content alone."""

import hashlib
import io
import stat
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

_BLOCK = 1 << 20


class Layer(NamedTuple):
    """A tar file and what an image says about it. The digest of a compressed one is not that of its content."""

    file: Path
    digest: str
    diff_id: str
    media_type: str = "application/vnd.oci.image.layer.v1.tar"


class Entry(NamedTuple):
    """One entry of a layer: a folder, a file with its bytes, or a symbolic link."""

    name: str
    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    is_folder: bool = False

    def header(self, epoch: int) -> tarfile.TarInfo:
        """The header of an entry of root."""
        info = tarfile.TarInfo(self.name)
        info.mtime = epoch
        if self.is_folder:
            info.type, info.mode = tarfile.DIRTYPE, 0o755
        elif self.link:
            info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, self.link
        else:
            info.mode, info.size = self.mode, len(self.content)
        return info


def write(entries: Iterable[Entry], file: Path, epoch: int) -> Layer:
    """A layer of these entries and the folders above them."""
    found = {entry.name: entry for entry in entries}
    for name in list(found):
        for folder in list(Path(name).parents)[:-1]:
            found.setdefault(str(folder), Entry(str(folder), is_folder=True))
    with _open(file) as tar:
        for name in sorted(found):
            tar.addfile(found[name].header(epoch), io.BytesIO(found[name].content))
    return measured(file)


def rewrite(source: Path, file: Path, epoch: int, is_wanted: Callable[[str], bool]) -> Layer:
    """A layer with the wanted entries of a tar file: sorted, none newer than the epoch, owners as numbers."""
    with tarfile.open(source) as read, _open(file) as tar:
        members = {name: member for member in read.getmembers() if (name := _plain(member.name))}
        wanted = [name for name in sorted(members) if is_wanted(name)]
        first: dict[str, str] = {}
        for name in wanted:
            member = members[name]
            # Of the names of one file the first one has the content, whichever it was in the source.
            target = _plain(member.linkname) if member.islnk() else name
            info = _copied(members[target], name, epoch)
            if target in first:
                info.type, info.linkname, info.size = tarfile.LNKTYPE, first[target], 0
                tar.addfile(info)
                continue
            first[target] = name
            tar.addfile(info, read.extractfile(members[target]) if info.isreg() else None)
    return measured(file)


def measured(file: Path) -> Layer:
    """A tar file that is not compressed, as a layer."""
    digest = sha256(file)
    return Layer(file, digest, digest)


def sha256(file: Path) -> str:
    """The digest of a file, as an image writes it."""
    with file.open("rb") as handle:
        return digest_of(handle)


def digest_of(handle: BinaryIO) -> str:
    """The digest of what can be read."""
    total = hashlib.sha256()
    while block := handle.read(_BLOCK):
        total.update(block)
    return f"sha256:{total.hexdigest()}"


def entries_of(folder: Path, prefix: str) -> list[Entry]:
    """The files below a folder, as entries below a prefix. What its owner may execute, all users may."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = f"{prefix}/{path.relative_to(folder).as_posix()}"
        if path.is_symlink():
            found.append(Entry(name, link=str(path.readlink())))
        elif path.is_file():
            mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
            found.append(Entry(name, path.read_bytes(), mode))
    return found


def _open(file: Path) -> tarfile.TarFile:
    return tarfile.open(file, "w", format=tarfile.PAX_FORMAT)


def _plain(name: str) -> str:
    """A name without the `./` of tar; the root itself has none."""
    return "" if name in {".", "./"} else name.removeprefix("./").strip("/")


def _copied(member: tarfile.TarInfo, name: str, epoch: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size = member.type, member.mode, member.size
    info.uid, info.gid, info.linkname = member.uid, member.gid, member.linkname
    info.mtime = min(int(member.mtime), epoch)
    # Capabilities of files are extended attributes; the rest of these headers is said above.
    info.pax_headers = {key: value for key, value in member.pax_headers.items() if key.startswith("SCHILY.xattr.")}
    return info
