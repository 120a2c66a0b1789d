"""The GPUs of this machine, and how many of them a pod requests."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

GPU = "nvidia.com/gpu"
VISIBLE = "CUDA_VISIBLE_DEVICES"
SECONDS = 10.0
"""Timeout of nvidia-smi: it loads the driver, which takes some seconds."""


def find_gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The GPUs that programs may use, in the words of CUDA_VISIBLE_DEVICES, which can limit them."""
    count = _listed(environ) or len(list(devices.glob("nvidia[0-9]*")))
    if VISIBLE not in environ:
        return tuple(map(str, range(count)))
    return tuple(_visible(environ[VISIBLE], count))


def _listed(environ: Mapping[str, str]) -> int:
    """The number of GPUs that nvidia-smi lists; 0 if there is no nvidia-smi or no driver."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return 0
    try:
        found = subprocess.run(  # noqa: S603
            [program, "--list-gpus"], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith(b"GPU ") for line in found.stdout.splitlines())


def _visible(text: str, count: int) -> Iterator[str]:
    """CUDA ignores everything from the first invalid entry on; names such as GPU-1b2c are not checked."""
    for entry in text.split(","):
        name = entry.strip()
        is_number = name.isdecimal() and len(name) < 10
        is_valid = int(name) < count if is_number else count > 0 and name.startswith(("GPU-", "MIG-"))
        if not is_valid:
            return
        yield name


def requested(container: Mapping[str, Any], resource: str = GPU) -> str:
    """What a container requests of a resource; its limit is the default. Empty if nothing."""
    resources = container.get("resources")
    sides = [resources.get(side) for side in ("requests", "limits")] if isinstance(resources, dict) else []
    return next((str(side[resource]) for side in sides if isinstance(side, dict) and resource in side), "")


def gpus_of(spec: Mapping[str, Any]) -> int:
    """The number of GPUs of a pod: its containers run together, its init containers one after the other."""
    together = sum(map(count_of, containers_in(spec, "containers")))
    return max(together, *map(count_of, containers_in(spec, "initContainers")), 0)


def containers_in(spec: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    """Also of a manifest that was not validated."""
    found = spec.get(field)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def count_of(container: Mapping[str, Any]) -> int:
    text = requested(container)
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def share_of(spec: Mapping[str, Any], name: str, gpus: Sequence[str]) -> tuple[str, ...]:
    """Those GPUs of a pod that its container with this name gets."""
    start = 0
    for container in containers_in(spec, "containers"):
        if container["name"] == name:
            return tuple(gpus[start : start + count_of(container)])
        start += count_of(container)
    found = next((each for each in containers_in(spec, "initContainers") if each["name"] == name), {})
    return tuple(gpus[: count_of(found)])
