"""What a pod that uses an accelerator gets from its node, as the operator's config file says."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.core.plan import Body
from trainmaster.kinds.accelerator import Accelerator, HostVolume
from trainmaster.kinds.mlkube import labels


def equipped(pod: Body, accelerators: Mapping[str, Accelerator]) -> Body:
    """The pod's spec with the volumes, mounts and variables of all accelerators that its main container asks for.

    Volumes, mounts and variables of the template stay, by name or mount path: mxnet-operator wrote them into the jobs.
    """
    used = [
        accelerators[name]
        for name in sorted(accelerators)
        if any(container["name"] == labels.CONTAINER and _asks_for(container, name) for container in pod["containers"])
    ]
    if not used:
        return pod
    volumes = [
        {"name": volume.name, "hostPath": {"path": volume.host_path}} for each in used for volume in each.volumes
    ]
    containers = [_with(c, used) if c["name"] == labels.CONTAINER else c for c in pod["containers"]]
    return {**pod, "containers": containers, "volumes": _added(pod.get("volumes"), volumes, "name")}


def _asks_for(container: Mapping[str, Any], resource: str) -> bool:
    resources = container.get("resources")
    amounts = [resources.get(kind) for kind in ("limits", "requests")] if isinstance(resources, dict) else []
    return any(isinstance(given, dict) and resource in given for given in amounts)


def _with(container: Body, used: Sequence[Accelerator]) -> Body:
    mounts = [_mount(volume) for each in used for volume in each.volumes]
    env = [{"name": variable.name, "value": variable.value} for each in used for variable in each.env_vars]
    return {
        **container,
        "volumeMounts": _added(container.get("volumeMounts"), mounts, "mountPath"),
        "env": _added(container.get("env"), env, "name"),
    }


def _mount(volume: HostVolume) -> Body:
    mount: Body = {"name": volume.name, "mountPath": volume.mount_path}
    return mount | {"readOnly": True} if volume.read_only else mount


def _added(found: Any, new: Sequence[Body], key: str) -> Any:
    """The entries found, and each new one whose key none of them has. What is not a list of objects is left to the API
    server, which refuses it."""
    if not isinstance(found or [], list):
        return found
    merged = list(found or ())
    for entry in new:
        if not any(isinstance(old, dict) and old.get(key) == entry[key] for old in merged):
            merged.append(entry)
    return merged
