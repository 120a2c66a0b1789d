"""Rejects pods that this node can never run, at once and with a message, instead of retrying."""

from collections.abc import Set

from trainmaster.local.node.decision import PodFailure
from trainmaster.local.node.isolation import Isolation
from trainmaster.local.node.pod import Object, Pod
from trainmaster.local.node.volume import PROJECTED, TOKEN, VOLUMES


def rejection(pod: Pod, isolation: Isolation, *, has_accounts: bool = False) -> PodFailure | None:
    """Why this pod can never run here; None if it can. ``has_accounts`` is set if the API server issues tokens of
    service accounts."""
    projected = PROJECTED | {TOKEN} if has_accounts else PROJECTED
    containers = (*pod.init_containers, *pod.containers)
    for container in containers:
        if not container.get("command"):
            return PodFailure("NoCommand", _no_command(container))
    for name, volume in pod.volumes.items():
        if message := _volume_problem(name, volume, projected):
            return PodFailure("UnsupportedVolume", message)
    for container in containers:
        for mount in () if isolation.mode else container.get("volumeMounts") or ():
            if not _is_in_place(pod, mount):
                return PodFailure("NamespacesNotAllowed", _no_namespace(container, mount, isolation))
        if message := _probe_problem(container):
            return PodFailure("UnsupportedProbe", message)
    return None


def _no_command(container: Object) -> str:
    return (
        f"container {container['name']} has no command, and local mode has no image to take one from; "
        'add command: ["program", "argument", …]'
    )


def _volume_problem(name: str, volume: Object, projected: Set[str]) -> str:
    kinds = [kind for kind in volume if kind != "name"] or ["emptyDir"]
    if kinds[0] not in VOLUMES:
        return f"volume {name} is a {kinds[0]}, which local mode does not have; use one of {', '.join(VOLUMES)}"
    sources = (volume.get("projected") or {}).get("sources") or ()
    for source in sources:
        if unsupported := sorted(source.keys() - projected):
            return f"volume {name} projects a {unsupported[0]}, which local mode does not have"
    return ""


def _is_in_place(pod: Pod, mount: Object) -> bool:
    """True for a hostPath volume that is mounted at its own path: no mount is needed."""
    host = pod.volumes.get(mount["name"], {}).get("hostPath")
    return host is not None and host["path"].rstrip("/") == mount["mountPath"].rstrip("/") and "subPath" not in mount


def _no_namespace(container: Object, mount: Object, isolation: Isolation) -> str:
    return (
        f"container {container['name']} mounts {mount['name']} at {mount['mountPath']}, which needs Linux user "
        f"namespaces, and this system does not allow them: {isolation.why}; allow them (sysctl "
        "kernel.unprivileged_userns_clone or kernel.apparmor_restrict_unprivileged_userns), or remove volumeMounts"
    )


def _probe_problem(container: Object) -> str:
    for field in ("startupProbe", "livenessProbe", "readinessProbe"):
        if "grpc" in (container.get(field) or {}):
            return (
                f"container {container['name']} has a {field} of kind grpc, which local mode does not have; "
                "use exec, httpGet or tcpSocket"
            )
    return ""
