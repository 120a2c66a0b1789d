"""Names of pods and services: one hosts file for each namespace. All names resolve to this machine."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trainmaster.core.ids import Key
from trainmaster.local.node.pod import LOOPBACK, Pod

DOMAIN = "svc.cluster.local"


class NamedPod(NamedTuple):
    """The fields of a pod that names depend on."""

    key: Key
    hostname: str = ""
    subdomain: str = ""
    address: str = LOOPBACK
    labels: Mapping[str, str] = {}

    @classmethod
    def of(cls, pod: Pod, address: str) -> "NamedPod":
        spec = pod.spec
        labels = {} if pod.is_ended else pod.metadata.get("labels") or {}  # services do not select a pod that has ended
        return cls(pod.key, spec.get("hostname", ""), spec.get("subdomain", ""), address, labels)


class NamedService(NamedTuple):
    """A service has the addresses of the pods that it selects, unless it has an ``address`` of its own."""

    key: Key
    selector: Mapping[str, str] = {}
    address: str = ""


def hosts_text(namespace: str, services: Iterable[NamedService], pods: Iterable[NamedPod], base: str) -> str:
    """``base`` is the machine's own hosts file, whose names still resolve."""
    newest = {pod.key: pod for pod in pods}  # an older pod of the same name may still be terminating
    selected = _Selection(newest.values())
    lines: dict[tuple[Key, str], dict[str, None]] = {}  # one line for each object and address of it
    for pod in newest.values():
        lines[pod.key, pod.address] = dict.fromkeys(_pod_names(namespace, pod))
    for service in services:
        for address in [newest[service.key].address] if service.key in newest else selected.addresses(service):
            lines.setdefault((service.key, address), {}).update(dict.fromkeys(service_names(namespace, service.key)))
    entries = [f"{address}\t{' '.join(lines[key, address])}" for key, address in sorted(lines)]
    return "\n".join([base.rstrip("\n"), f"# pods and services of {namespace}, and what it can see", *entries, ""])


def service_names(namespace: str, service: Key) -> Iterator[str]:
    """The names of a service within a namespace. The first name of a line is the canonical one."""
    full = f"{service.name}.{service.namespace}"
    yield from (full, f"{full}.svc", f"{full}.{DOMAIN}")
    if service.namespace == namespace:
        yield service.name


def _pod_names(namespace: str, pod: NamedPod) -> Iterator[str]:
    """The canonical name of a pod with a subdomain is its full one, which ``hostname -f`` prints, as on a cluster."""
    if pod.subdomain:
        full = f"{pod.hostname or pod.key.name}.{pod.subdomain}.{pod.key.namespace}"
        yield from (f"{full}.{DOMAIN}", full, f"{full}.svc")
        if pod.key.namespace == namespace:
            yield f"{pod.hostname or pod.key.name}.{pod.subdomain}"
    yield f"{pod.key.name}.{pod.key.namespace}"
    if pod.key.namespace == namespace:
        yield pod.key.name
        if pod.hostname:
            yield pod.hostname


class _Selection:
    """Finds the pods that services select, by one of their labels first: there may be thousands of both."""

    def __init__(self, pods: Iterable[NamedPod]) -> None:
        self._by_label: dict[tuple[str, str, str], list[NamedPod]] = defaultdict(list)
        for pod in pods:
            for name, value in pod.labels.items():
                self._by_label[pod.key.namespace, name, value].append(pod)

    def addresses(self, service: NamedService) -> list[str]:
        """Sorted; 127.0.0.1 for a service without pods."""
        if service.address:
            return [service.address]
        labels = service.selector.items()
        rows = [self._by_label.get((service.key.namespace, *label), []) for label in labels]
        pods = [pod for pod in min(rows, key=len, default=[]) if labels <= pod.labels.items()]
        return sorted({pod.address for pod in pods}) or [LOOPBACK]


class HostsFiles:
    """Keeps the files ``folder/<namespace>`` up to date, for the namespaces that were requested.

    A file is rewritten in place: it is bind-mounted into running containers by its inode.
    """

    def __init__(
        self,
        folder: Path,
        services: Callable[[], Iterable[NamedService]],
        pods: Callable[[], Iterable[NamedPod]],
        base: str,
    ) -> None:
        self._folder = folder
        self._services = services
        self._pods = pods
        self._base = base
        self._stale: set[str] = set()
        self._known: set[str] = set()

    def keep(self, namespaces: Iterable[str]) -> None:
        """Called with the namespaces of pods that an earlier node left: their containers read its files."""
        self._known.update(namespaces)

    def invalidate(self) -> None:
        """Called when a pod or service was added or deleted, or its names changed."""
        self._stale = set(self._known)

    def file(self, namespace: str) -> Path:
        """The up-to-date file of a namespace."""
        path = self._folder / namespace
        if namespace not in self._known or namespace in self._stale:
            self._known.add(namespace)
            self._stale.discard(namespace)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            overwrite(path, hosts_text(namespace, self._services(), self._pods(), self._base))
        return path

    def refresh(self) -> None:
        for namespace in sorted(self._stale):
            self.file(namespace)

    def drop(self, namespace: str) -> None:
        """Called when the node has no more pods of this namespace."""
        self._known.discard(namespace)
        self._stale.discard(namespace)
        (self._folder / namespace).unlink(missing_ok=True)


def resolver_mounts(folder: Path, etc: Path = Path("/etc"), run: Path = Path("/run")) -> list[dict[str, str]]:
    """Mounts that make programs read their hosts file first, if this system uses another resolver before it."""
    mounts = []
    switch = etc / "nsswitch.conf"
    if switch.is_file() and (text := files_first(old := switch.read_text(errors="replace"))) != old:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = folder / ".nsswitch.conf"
        overwrite(own, text)
        mounts.append({"source": str(own), "target": str(switch)})
    if (run / "nscd" / "socket").exists():  # nscd runs outside of the container and does not know its names
        mounts.append({"source": os.devnull, "target": str(run / "nscd" / "socket")})
    return mounts


def files_first(switch: str) -> str:
    """nsswitch.conf with ``files`` as the first source of hosts."""

    def moved(match: re.Match[str]) -> str:
        others = [word for word in match[2].split() if word != "files"]
        return match[0] if match[2].split()[:1] == ["files"] else " ".join([match[1], "files", *others])

    return re.sub(r"^(hosts:)[ \t]*([^#\n]*)", moved, switch, flags=re.MULTILINE)


def overwrite(path: Path, text: str) -> None:
    """Replaces the text of a file in place and in one write, so that a reader never sees part of a line.

    A shorter text is padded with empty lines first, then truncated.
    """
    content = text.encode()
    target = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        old = os.fstat(target).st_size
        if old == len(content) and os.pread(target, old, 0) == content:
            return
        os.pwrite(target, content.ljust(old, b"\n"), 0)
        os.ftruncate(target, len(content))
    finally:
        os.close(target)
