"""An OCI archive: what `ctr images import` and `docker load` read."""

import datetime
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deploy.image.layer import Layer

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Config(NamedTuple):
    """How a container of the image is started."""

    env: dict[str, str]
    user: str = ""
    entrypoint: Sequence[str] = ()
    folder: str = "/"
    labels: dict[str, str] = {}


def write(file: Path, names: Sequence[str], layers: Sequence[Layer], config: Config, epoch: int) -> str:
    """Write the archive and answer the digest of the image; `names` are complete: docker.io/library/name:tag."""
    body = _bytes(_config(layers, config, epoch))
    manifest = _bytes(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **_described(body)},
            "layers": [
                {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.file.stat().st_size}
                for layer in layers
            ],
        }
    )
    described = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        **_described(manifest),
        "platform": {"architecture": _architecture(), "os": "linux"},
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                **described,
                "annotations": {
                    "io.containerd.image.name": name,
                    "org.opencontainers.image.ref.name": name.rpartition(":")[2],
                },
            }
            for name in names
        ],
    }
    # For docker before 25, which does not read the OCI layout.
    docker = [
        {
            "Config": _blob(_described(body)["digest"]),
            "RepoTags": [name.removeprefix("docker.io/library/") for name in names],
            "Layers": [_blob(layer.digest) for layer in layers],
        }
    ]
    small = {
        "oci-layout": _bytes({"imageLayoutVersion": "1.0.0"}),
        "index.json": _bytes(index),
        "manifest.json": _bytes(docker),
        _blob(_described(body)["digest"]): body,
        _blob(_described(manifest)["digest"]): manifest,
    }
    with tarfile.open(file, "w") as tar:
        for name, content in small.items():
            tar.addfile(_header(name, len(content), epoch), io.BytesIO(content))
        for layer in {layer.digest: layer for layer in layers}.values():
            with layer.file.open("rb") as handle:
                tar.addfile(_header(_blob(layer.digest), layer.file.stat().st_size, epoch), handle)
    return str(described["digest"])


def _config(layers: Sequence[Layer], config: Config, epoch: int) -> dict[str, Any]:
    created = datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "created": created,
        "architecture": _architecture(),
        "os": "linux",
        "config": {
            "User": config.user,
            "Env": [f"{key}={value}" for key, value in config.env.items()],
            "Entrypoint": list(config.entrypoint) or None,
            "WorkingDir": config.folder,
            "Labels": config.labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": created, "created_by": "python -m deploy.image"} for _ in layers],
    }


def _architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def _header(name: str, size: int, epoch: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, epoch
    return info


def _bytes(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _described(content: bytes) -> dict[str, Any]:
    return {"digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
