"""The environment, command and arguments of a container, expanded as Kubernetes does it. No I/O."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from trainmaster.core.quantity import amount_of, rounded_up
from trainmaster.local.node.pod import LOOPBACK, Object, Pod

CONFIG_MAP = "ConfigMap"
SECRET = "Secret"  # noqa: S105  the word, not one

INHERITED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH"),
        *("PYTHONUNBUFFERED", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
    }
)
"""What a program on this machine needs of the node's own environment; nothing else gets in."""

DEFAULTS = {"PYTHONUNBUFFERED": "1"}
"""Variables of every container, unless the node's environment or the pod sets them. The output of a container goes
into a pipe, and Python would write to it in blocks of 8 KB only."""


class BadReference(Exception):
    """Something that a container refers to is not there (yet); the sentence is the kubelet's."""


class Source(NamedTuple):
    """A config map or a secret of the pod's namespace."""

    kind: str
    name: str


class Token(NamedTuple):
    """A token of the pod's service account, as a volume asks for it."""

    audience: str
    seconds: int


Data = Mapping[str, bytes]
Sources = Mapping[Source, Data | None]
"""What was found; None where there is no such object."""


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What every container gets, given the node's own environment; the variables of the pod win over it."""
    return DEFAULTS | {name: value for name, value in environ.items() if name in INHERITED or name.startswith("LC_")}


def data_of(body: Object) -> dict[str, bytes]:
    """What a config map or a secret holds."""
    if body.get("kind") == CONFIG_MAP:
        texts = {key: text.encode() for key, text in (body.get("data") or {}).items()}
        return texts | {key: _decoded(text) for key, text in (body.get("binaryData") or {}).items()}
    return {key: _decoded(text) for key, text in (body.get("data") or {}).items()}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""  # an API server does not store this


# --- what is referred to -----------------------------------------------------------------------


def references(container: Object) -> Iterator[Source]:
    """The objects that the container's environment is made of."""
    for each in container.get("envFrom") or ():
        if reference := each.get("configMapRef"):
            yield Source(CONFIG_MAP, reference["name"])
        if reference := each.get("secretRef"):
            yield Source(SECRET, reference["name"])
    for each in container.get("env") or ():
        origin = each.get("valueFrom") or {}
        if reference := origin.get("configMapKeyRef"):
            yield Source(CONFIG_MAP, reference["name"])
        if reference := origin.get("secretKeyRef"):
            yield Source(SECRET, reference["name"])


# --- the environment ---------------------------------------------------------------------------


class Surroundings(NamedTuple):
    """What variables can speak of besides the pod itself."""

    sources: Sources
    allocatable: Mapping[str, str]
    """The node's resources: what a container without a limit may use."""
    tokens: Mapping[Token, bytes] = {}


def environment(pod: Pod, container: Object, around: Surroundings) -> dict[str, str]:
    """The container's variables; ``env`` wins over ``envFrom``, and later ones see earlier ones."""
    found = dict(_from_objects(pod, container, around.sources))
    for each in container.get("env") or ():
        if each.get("value"):
            found[each["name"]] = expand(each["value"], found)
        elif origin := each.get("valueFrom"):
            value = _value(pod, container, origin, around)
            if value is not None:
                found[each["name"]] = value
        else:
            found[each["name"]] = ""
    return found


def command_of(container: Object, env: Mapping[str, str]) -> list[str]:
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(word, env) for word in words]


def _from_objects(pod: Pod, container: Object, sources: Sources) -> Iterator[tuple[str, str]]:
    for each in container.get("envFrom") or ():
        prefix = each.get("prefix", "")
        for kind, field in ((CONFIG_MAP, "configMapRef"), (SECRET, "secretRef")):
            if reference := each.get(field):
                data = _found(Source(kind, reference["name"]), reference, sources)
                yield from ((prefix + key, _text(value)) for key, value in data.items())


def _value(pod: Pod, container: Object, origin: Object, around: Surroundings) -> str | None:
    if reference := origin.get("fieldRef"):
        return field_of(pod, reference["fieldPath"])
    if reference := origin.get("resourceFieldRef"):
        return resource_of(pod, container, reference, around.allocatable)
    for kind, field in ((CONFIG_MAP, "configMapKeyRef"), (SECRET, "secretKeyRef")):
        if reference := origin.get(field):
            return _key_of(pod, Source(kind, reference["name"]), reference, around.sources)
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
    """Environment variables are bytes; what is no UTF-8 survives the way through a string."""
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
    "status.podIP": lambda _: LOOPBACK,
    "status.podIPs": lambda _: LOOPBACK,
}


def field_of(pod: Pod, path: str) -> str:
    if found := _SUBSCRIPT.fullmatch(path):
        values = pod.metadata.get(found[1]) or {}
        return str(values.get(found[2], ""))
    if path not in _FIELDS:
        raise BadReference(f"unsupported fieldPath: {path}")
    return _FIELDS[path](pod)


def _listed(values: Mapping[str, str]) -> str:
    """As the downward API writes labels into a file."""
    return "\n".join(f'{key}="{_quoted(values[key])}"' for key in sorted(values))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_of(pod: Pod, container: Object, reference: Object, allocatable: Mapping[str, str]) -> str:
    """An amount that a container may use; without a limit it is all that the node has."""
    name = reference.get("containerName")
    owner = next((each for each in (*pod.containers, *pod.init_containers) if each["name"] == name), container)
    side, _, resource = reference["resource"].partition(".")
    given = owner.get("resources") or {}
    quantity = (given.get(side) or {}).get(resource)
    if quantity is None:
        quantity = allocatable.get(resource, "0") if side == "limits" else "0"
    unit = amount_of(str(reference.get("divisor") or "1")) or Decimal(1)
    return str(rounded_up(amount_of(str(quantity)) / unit))


# --- $(VAR) ------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, env: Mapping[str, str]) -> str:
    """``$(NAME)`` becomes the variable's value where there is one; ``$$`` is a dollar sign."""

    def replaced(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "$"
        return env[name] if name in env else found[0]

    return _REFERENCE.sub(replaced, text)
