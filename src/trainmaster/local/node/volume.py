"""Volumes: their files on this machine, and the mounts of a container."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.local.disk import write_whole
from trainmaster.local.node.environment import (
    CONFIG_MAP,
    SECRET,
    BadReference,
    Data,
    Source,
    Sources,
    Token,
    VariableContext,
    expand,
    field_of,
    resource_of,
)
from trainmaster.local.node.pod import Object, Pod

DEFAULT_MODE = 0o644
VOLUMES = ("emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected")
"""The types of volumes that a pod may have; another type is added here and in ``Volumes``."""
PROJECTED = frozenset({"configMap", "secret", "downwardAPI"})
TOKEN = "serviceAccountToken"  # noqa: S105  a volume source, not a token
TOKEN_SECONDS = 3600
"""The API's default."""
_KINDS = {"configMap": CONFIG_MAP, "secret": SECRET}


class File(NamedTuple):
    content: bytes
    mode: int


def volume_references(pod: Pod) -> Iterator[Source]:
    """The objects that the pod's volumes refer to."""
    for volume in pod.volumes.values():
        for kind, source in _parts(volume):
            if kind in _KINDS:
                yield Source(_KINDS[kind], _name_of(source))


def token_references(pod: Pod) -> Iterator[Token]:
    """The tokens that the pod's volumes project."""
    for volume in pod.volumes.values():
        yield from (_token(source) for kind, source in _parts(volume) if kind == TOKEN)


def _token(source: Object) -> Token:
    return Token(source.get("audience", ""), source.get("expirationSeconds", TOKEN_SECONDS))


def _parts(volume: Object) -> Iterator[tuple[str, Object]]:
    """The sources of a projected volume; other volumes have one."""
    for part in (volume.get("projected") or {}).get("sources") or [volume]:
        for kind in ("configMap", "secret", "downwardAPI", TOKEN):
            if kind in part:
                yield kind, part[kind]


def _name_of(source: Object) -> str:
    name: str = source.get("secretName") or source.get("name") or ""
    return name


def files_of(pod: Pod, volume: Object, context: VariableContext) -> dict[str, File]:
    """The files of a configMap, secret, downwardAPI or projected volume, by path."""
    whole = volume.get("projected") or next((source for _, source in _parts(volume)), {})
    mode = whole.get("defaultMode", DEFAULT_MODE)
    files: dict[str, File] = {}
    for kind, source in _parts(volume):
        if kind == "downwardAPI":
            files |= _downward(pod, source, context, mode)
        elif kind == TOKEN:
            files[source["path"]] = File(context.tokens[_token(source)], mode)
        else:
            files |= _chosen(pod, volume, Source(_KINDS[kind], _name_of(source)), source, context.sources, mode)
    return files


def _chosen(
    pod: Pod, volume: Object, source: Source, reference: Object, sources: Sources, mode: int
) -> dict[str, File]:
    data: Data | None = sources.get(source)
    if data is None:
        if reference.get("optional"):
            return {}
        raise _setup_failed(volume, f'{source.kind.lower()} "{source.name}" not found')
    if not reference.get("items"):
        return {key: File(content, mode) for key, content in data.items()}
    files = {}
    for item in reference["items"]:
        if item["key"] in data:
            files[item["path"]] = File(data[item["key"]], item.get("mode", mode))
        elif not reference.get("optional"):
            raise _setup_failed(volume, f"references non-existent {source.kind.lower()} key: {item['key']}")
    return files


def _setup_failed(volume: Object, why: str) -> BadReference:
    return BadReference(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {why}')


def _downward(pod: Pod, source: Object, context: VariableContext, mode: int) -> dict[str, File]:
    files = {}
    for item in source.get("items") or ():
        if reference := item.get("fieldRef"):
            text = field_of(pod, reference["fieldPath"], context.address)
        else:
            text = resource_of(pod, {}, item["resourceFieldRef"], context.allocatable)
        files[item["path"]] = File(text.encode(), item.get("mode", mode))
    return files


# --- on disk -----------------------------------------------------------------------------------


def make_volumes(pod: Pod, folder: Path, context: VariableContext) -> None:
    """Creates and updates the pod's volumes; files that are up to date are not touched."""
    for volume in pod.volumes.values():
        place = folder / volume["name"]
        if host := volume.get("hostPath"):
            _make_host_path(volume, host)
            continue
        place.mkdir(mode=0o777, parents=True, exist_ok=True)
        if any(_parts(volume)):
            write_files(place, files_of(pod, volume, context))


def write_files(place: Path, files: Mapping[str, File]) -> None:
    """Replaces each file atomically and removes the others."""
    for path, file in files.items():
        target = place / path
        if target.is_file() and target.read_bytes() == file.content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, file.content, file.mode)
    kept = {place / path for path in files}
    for old in sorted(place.rglob("*")):
        if old.is_file() and old not in kept:
            old.unlink()


def _make_host_path(volume: Object, host: Object) -> None:
    path, kind = Path(host["path"]), host.get("type") or ""
    try:
        if kind == "DirectoryOrCreate" or (not kind and not path.exists()):
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        elif kind == "FileOrCreate" and not path.exists():
            path.touch(mode=0o644)
    except OSError as error:
        raise _setup_failed(volume, f"cannot make hostPath {path}: {error.strerror}") from error
    is_wanted = {"Directory": path.is_dir, "File": path.is_file, "Socket": path.is_socket}.get(kind, path.exists)
    if not is_wanted():
        raise _setup_failed(volume, f"hostPath type check failed: {path} is not a {kind or 'path'}")


def mounts(pod: Pod, container: Object, folder: Path, env: Mapping[str, str]) -> list[dict[str, Any]]:
    """The container's mounts in the format of the shim. Volumes of API objects are read-only."""
    mounts = []
    for mount in container.get("volumeMounts") or ():
        volume = pod.volumes[mount["name"]]
        host = volume.get("hostPath")
        source = Path(host["path"]) if host else folder / mount["name"]
        below = mount.get("subPath") or expand(mount.get("subPathExpr") or "", env)
        if below:
            source = _inside(source, below, mount)
        is_fixed = bool(mount.get("readOnly")) or any(_parts(volume))
        mounts.append({"source": str(source), "target": mount["mountPath"], "readOnly": is_fixed})
    return mounts


def _inside(source: Path, below: str, mount: Object) -> Path:
    if Path(below).is_absolute() or ".." in Path(below).parts:
        raise BadReference(f"subPath {below!r} of volume {mount['name']} must stay inside of the volume")
    place = source / below
    if not place.exists():
        place.mkdir(parents=True, exist_ok=True)
    return place
