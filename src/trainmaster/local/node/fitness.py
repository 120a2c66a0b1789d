"""Pods that this node can never run: said at once, in a sentence, instead of tried again and again."""

from collections.abc import Set

from trainmaster.local.node.decision import Verdict
from trainmaster.local.node.isolation import Isolation
from trainmaster.local.node.pod import Object, Pod

VOLUMES = ("emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected")
PROJECTED = frozenset({"configMap", "secret", "downwardAPI"})
TOKEN = "serviceAccountToken"  # noqa: S105  the word, not one


def unfit(pod: Pod, isolation: Isolation, *, has_accounts: bool = False) -> Verdict | None:
    """Why this pod cannot run here, whatever is waited for; None when it can. ``has_accounts`` where the API server
    gives out tokens of service accounts."""
    projected = PROJECTED | {TOKEN} if has_accounts else PROJECTED
    containers = (*pod.init_containers, *pod.containers)
    for container in containers:
        if not container.get("command"):
            return Verdict("NoCommand", _no_command(container))
    for name, volume in pod.volumes.items():
        if message := _volume_problem(name, volume, projected):
            return Verdict("UnsupportedVolume", message)
    for container in containers:
        for mount in () if isolation.mode else container.get("volumeMounts") or ():
            if not _is_in_place(pod, mount):
                return Verdict("NamespacesNotAllowed", _no_namespace(container, mount, isolation))
        if message := _probe_problem(container):
            return Verdict("UnsupportedProbe", message)
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
        if strange := sorted(source.keys() - projected):
            return f"volume {name} projects a {strange[0]}, which local mode does not have"
    return ""


def _is_in_place(pod: Pod, mount: Object) -> bool:
    """A folder of this machine at its own path is there without any mount."""
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
