"""The environment, command and arguments of a container, expanded as in Kubernetes. No I/O."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from trainmaster.core.quantity import amount_of, rounded_up
from trainmaster.local.node.pod import LOOPBACK, Object, Pod

CONFIG_MAP = "ConfigMap"
SECRET = "Secret"  # noqa: S105  a kind, not a secret

INHERITED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH"),
        *("PYTHONUNBUFFERED", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
    }
)
"""Variables of the node's own environment that containers inherit."""

SHELL = frozenset({"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"})
SHELL_PREFIXES = ("WANDB_", "HF_")
PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
"""In lower or upper case. Containers of the user's own jobs inherit these variables, too. Those of other users do not:
they may contain secrets."""

DEFAULTS = {"PYTHONUNBUFFERED": "1"}
"""Variables of every container, unless the node's environment or the pod sets them. Containers write into a pipe, where
Python would buffer blocks of 8 KB."""


class BadReference(Exception):
    """An object that a container refers to does not exist (yet); the message is the kubelet's."""


class Source(NamedTuple):
    """A config map or secret in the pod's namespace."""

    kind: str
    name: str


class Token(NamedTuple):
    """A token of the pod's service account, as a volume projects it."""

    audience: str
    seconds: int


Data = Mapping[str, bytes]
Sources = Mapping[Source, Data | None]
"""Data by object; None if the object does not exist."""


def inherited(environ: Mapping[str, str], *, is_own: bool = False) -> dict[str, str]:
    """The variables that containers inherit from the node's environment; the pod's own variables override them.
    ``is_own``: the jobs are those of the user whose environment it is."""
    return DEFAULTS | {name: value for name, value in environ.items() if _is_inherited(name, is_own)}


def _is_inherited(name: str, is_own: bool) -> bool:
    if name in INHERITED or name.startswith("LC_"):
        return True
    return is_own and (name in SHELL or name.startswith(SHELL_PREFIXES) or name.lower() in PROXIES)


def direct(environ: Mapping[str, str], namespace: str) -> dict[str, str]:
    """``no_proxy`` for the addresses and names of this machine, if there is a proxy: it could not reach them."""
    if not any(name in environ or name.upper() in environ for name in PROXIES[:-1]):
        return {}
    given = environ.get("no_proxy") or environ.get("NO_PROXY")
    here = ("localhost", LOOPBACK, "127.0.0.0/8", f".{namespace}", ".svc", ".cluster.local")
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join((*([given] if given else ()), *here)))


def data_of(body: Object) -> dict[str, bytes]:
    """The data of a config map or a secret."""
    if body.get("kind") == CONFIG_MAP:
        texts = {key: text.encode() for key, text in (body.get("data") or {}).items()}
        return texts | {key: _decoded(text) for key, text in (body.get("binaryData") or {}).items()}
    return {key: _decoded(text) for key, text in (body.get("data") or {}).items()}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""  # an API server does not store invalid base64


# --- references --------------------------------------------------------------------------------


def references(container: Object) -> Iterator[Source]:
    """The objects that the container's environment refers to."""
    for entry in container.get("envFrom") or ():
        if reference := entry.get("configMapRef"):
            yield Source(CONFIG_MAP, reference["name"])
        if reference := entry.get("secretRef"):
            yield Source(SECRET, reference["name"])
    for entry in container.get("env") or ():
        origin = entry.get("valueFrom") or {}
        if reference := origin.get("configMapKeyRef"):
            yield Source(CONFIG_MAP, reference["name"])
        if reference := origin.get("secretKeyRef"):
            yield Source(SECRET, reference["name"])


# --- the environment ---------------------------------------------------------------------------


class VariableContext(NamedTuple):
    """What variables can refer to besides the pod itself."""

    sources: Sources
    allocatable: Mapping[str, str]
    """The node's resources, which are the limits of a container without limits."""
    tokens: Mapping[Token, bytes] = {}
    address: str = LOOPBACK
    """Of the pod."""


def environment(pod: Pod, container: Object, context: VariableContext) -> dict[str, str]:
    """The container's variables; ``env`` overrides ``envFrom``, and a variable can refer to earlier ones."""
    variables = dict(_from_objects(pod, container, context.sources))
    for entry in container.get("env") or ():
        if entry.get("value"):
            variables[entry["name"]] = expand(entry["value"], variables)
        elif origin := entry.get("valueFrom"):
            value = _value(pod, container, origin, context)
            if value is not None:
                variables[entry["name"]] = value
        else:
            variables[entry["name"]] = ""
    return variables


def command_of(container: Object, env: Mapping[str, str]) -> list[str]:
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(word, env) for word in words]


def _from_objects(pod: Pod, container: Object, sources: Sources) -> Iterator[tuple[str, str]]:
    for entry in container.get("envFrom") or ():
        prefix = entry.get("prefix", "")
        for kind, field in ((CONFIG_MAP, "configMapRef"), (SECRET, "secretRef")):
            if reference := entry.get(field):
                data = _found(Source(kind, reference["name"]), reference, sources)
                yield from ((prefix + key, _text(value)) for key, value in data.items())


def _value(pod: Pod, container: Object, origin: Object, context: VariableContext) -> str | None:
    if reference := origin.get("fieldRef"):
        return field_of(pod, reference["fieldPath"], context.address)
    if reference := origin.get("resourceFieldRef"):
        return resource_of(pod, container, reference, context.allocatable)
    for kind, field in ((CONFIG_MAP, "configMapKeyRef"), (SECRET, "secretKeyRef")):
        if reference := origin.get(field):
            return _key_of(pod, Source(kind, reference["name"]), reference, context.sources)
    raise BadReference(f"valueFrom with {', '.join(sorted(origin))} is not supported in local mode")


def _key_of(pod: Pod, source: Source, reference: Object, sources: Sources) -> str | None:
    data = _found(source, reference, sources)
    if reference["key"] in data:
        return _text(data[reference["key"]])
    if reference.get("optional"):
        return None
    raise BadReference(f"couldn't find key {reference['key']} in {source.kind} {pod.key.namespace}/{source.name}")


def _found(source: Source, reference: Object, sources: Sources) -> Data:
    data = sources.get(source)
    if data is None and not reference.get("optional"):
        raise BadReference(f'{source.kind.lower()} "{source.name}" not found')
    return data or {}


def _text(value: bytes) -> str:
    """Environment variables are bytes; invalid UTF-8 is preserved."""
    return value.decode(errors="surrogateescape")


# --- fields of the pod -------------------------------------------------------------------------

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")

_FIELDS: Mapping[str, Callable[[Pod], str]] = {
    "metadata.name": lambda pod: pod.key.name,
    "metadata.namespace": lambda pod: pod.key.namespace,
    "metadata.uid": lambda pod: pod.uid,
    "metadata.labels": lambda pod: _listed(pod.metadata.get("labels") or {}),
    "metadata.annotations": lambda pod: _listed(pod.metadata.get("annotations") or {}),
    "spec.nodeName": lambda pod: pod.spec.get("nodeName", ""),
    "spec.serviceAccountName": lambda pod: pod.spec.get("serviceAccountName", "default"),
    "status.hostIP": lambda _: LOOPBACK,
    "status.hostIPs": lambda _: LOOPBACK,
}


def field_of(pod: Pod, path: str, address: str) -> str:
    """``address`` is that of the pod."""
    if path in ("status.podIP", "status.podIPs"):
        return address
    if match := _SUBSCRIPT.fullmatch(path):
        values = pod.metadata.get(match[1]) or {}
        return str(values.get(match[2], ""))
    if path not in _FIELDS:
        raise BadReference(f"unsupported fieldPath: {path}")
    return _FIELDS[path](pod)


def _listed(values: Mapping[str, str]) -> str:
    """In the format of the downward API for labels in a file."""
    return "\n".join(f'{key}="{_quoted(values[key])}"' for key in sorted(values))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_of(pod: Pod, container: Object, reference: Object, allocatable: Mapping[str, str]) -> str:
    """The resource limit of a container; without one, what the node has."""
    name = reference.get("containerName")
    owner = next((each for each in (*pod.containers, *pod.init_containers) if each["name"] == name), container)
    side, _, resource = reference["resource"].partition(".")
    resources = owner.get("resources") or {}
    quantity = (resources.get(side) or {}).get(resource)
    if quantity is None:
        quantity = allocatable.get(resource, "0") if side == "limits" else "0"
    unit = amount_of(str(reference.get("divisor") or "1")) or Decimal(1)
    return str(rounded_up(amount_of(str(quantity)) / unit))


# --- $(VAR) ------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replaces ``$(NAME)`` by the variable's value if it is defined; ``$$`` is a dollar sign."""

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "$"
        return env[name] if name in env else match[0]

    return _REFERENCE.sub(replaced, text)
