"""What a pod asks for that a process of this user cannot have: another identity, fewer rights, isolation.

A node of a cluster refuses such a pod: its author relies on the field. Local mode runs the pods of one person, as
that person: it refuses a pod only if the process would be root and the pod says that it must not be. What is not
refused is mentioned in an Event.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from trainmaster.local.node.decision import PodFailure
from trainmaster.local.node.pod import Object, Pod
from trainmaster.local.node.taint import KEY, is_tolerated

UNSUPPORTED = "UnsupportedSecurityContext"
ALL = "ALL"


class Identity(msgspec.Struct, frozen=True):
    """Of every process on this node."""

    user: int
    group: int
    groups: frozenset[int] = frozenset()
    is_linux: bool = True

    @property
    def is_root(self) -> bool:
        return self.user == 0


class Policy(msgspec.Struct, frozen=True):
    """Which pods a node runs."""

    identity: Identity
    is_strict: bool = False
    """Everything that cannot be had is refused: the node of a cluster."""
    is_tainted: bool = False
    """Pods that do not tolerate the node's taint are refused."""


class Unmet(msgspec.Struct, frozen=True):
    """A field that this node does not do."""

    field: str
    because: str
    is_excess: bool = False
    """The process would have rights that the pod renounces."""
    is_default: bool = False
    """The pod asks for the default of its node, which is nothing here. It is mentioned and not refused: the Pod
    Security Standard *restricted* wants every pod to ask for it."""

    def __str__(self) -> str:
        return f"{self.field}: {self.because}"


def own_identity() -> Identity:
    return Identity(os.geteuid(), os.getegid(), frozenset(os.getgroups()), sys.platform == "linux")


def refusal(pod: Pod, policy: Policy) -> PodFailure | None:
    """Why this pod may not run here; None if it may."""
    if policy.is_tainted and not is_tolerated(pod):
        return PodFailure(
            "TaintToleration",
            f"this node runs pods as processes of one user; add a toleration with the key {KEY} to the pod if it may",
        )
    found = unmet(pod, policy.identity)
    refused = [each for each in found if each.is_excess or (policy.is_strict and not each.is_default)]
    if not refused:
        return None
    return PodFailure(UNSUPPORTED, f"{'; '.join(map(str, refused))}; remove it, or use another node")


def unmet(pod: Pod, identity: Identity) -> list[Unmet]:
    """The fields of this pod that are not done, each once."""
    found = [*_of_spec(pod.spec)]
    shared = pod.spec.get("securityContext") or {}
    for container in (*pod.init_containers, *pod.containers):
        own = container.get("securityContext") or {}
        for field, value in {**shared, **own}.items():
            place = f"container {container['name']}: " if field in own else "spec."
            found += _of_context(f"{place}securityContext", field, value, identity)
    return list(dict.fromkeys(found))


def limits_of(pod: Pod, container: Object) -> Object:
    """What the shim takes away from the program before it runs."""
    context = {**(pod.spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
    drops = _capabilities(context, "drop")
    return {
        "noNewPrivileges": context.get("allowPrivilegeEscalation") is False or bool(drops),
        "noCapabilities": ALL in drops,
    }


# --- fields ------------------------------------------------------------------------------------


def _of_spec(spec: Object) -> Iterator[Unmet]:
    if spec.get("hostUsers") is False:
        yield Unmet("spec.hostUsers", "processes of this node have no users of their own")
    if name := spec.get("runtimeClassName"):
        yield Unmet("spec.runtimeClassName", f"processes of this node have no container runtime, so not {name} either")


def _of_context(place: str, field: str, value: Any, identity: Identity) -> Iterator[Unmet]:
    if value is None:
        return
    if field == "capabilities":
        yield from _of_capabilities(place, value, identity)
        return
    rule = _RULES.get(field, _unknown)
    if because := rule(value, identity):
        is_excess = identity.is_root and field in _NOT_ROOT
        is_default = rule is _profile and value.get("type") == _DEFAULT
        yield Unmet(f"{place}.{field}", because, is_excess=is_excess, is_default=is_default)


def _of_capabilities(place: str, value: Object, identity: Identity) -> Iterator[Unmet]:
    added = ", ".join(_capabilities({"capabilities": value}, "add"))
    dropped = _capabilities({"capabilities": value}, "drop")
    if added:
        because = f"a process of user {identity.user} gets no {added}; it has the capabilities of its user"
        yield Unmet(f"{place}.capabilities.add", because)
    if dropped and not (identity.is_linux and (ALL in dropped or not identity.is_root)):
        because = f"a process of user {identity.user} can drop ALL capabilities on Linux, and not single ones"
        yield Unmet(f"{place}.capabilities.drop", because, is_excess=identity.is_root)


def _capabilities(context: Object, verb: str) -> list[str]:
    return [name.upper().removeprefix("CAP_") for name in (context.get("capabilities") or {}).get(verb) or ()]


def _run_as_user(value: int, identity: Identity) -> str:
    return "" if value == identity.user else f"processes of this node run as user {identity.user}, not as {value}"


def _run_as_group(value: int, identity: Identity) -> str:
    return "" if value == identity.group else f"processes of this node run as group {identity.group}, not as {value}"


def _run_as_non_root(value: bool, identity: Identity) -> str:
    return "processes of this node run as root" if value and identity.is_root else ""


def _groups(value: list[int], identity: Identity) -> str:
    missing = sorted(set(value) - identity.groups - {identity.group})
    return f"processes of this node are not in group {missing[0]}" if missing else ""


def _groups_policy(value: str, _: Identity) -> str:
    return "" if value == "Merge" else "processes of this node have the groups of their user, too"


def _no_new_privileges(value: bool, identity: Identity) -> str:
    return "" if value or identity.is_linux else "only Linux can forbid it"


def _profile(value: Object, _: Identity) -> str:
    kind = value.get("type", "")
    return "" if kind in ("", "Unconfined") else f"processes of this node have no {kind} profile"


def _nothing(_: Any, __: Identity) -> str:
    return ""


def _cannot(value: Any, _: Identity) -> str:
    return "a process of this node cannot have it" if value else ""


def _unknown(_: Any, __: Identity) -> str:
    return "this node does not know the field"


_DEFAULT = "RuntimeDefault"
_NOT_ROOT = frozenset({"runAsUser", "runAsGroup", "runAsNonRoot"})
_RULES: Mapping[str, Callable[[Any, Identity], str]] = {
    "runAsUser": _run_as_user,
    "runAsGroup": _run_as_group,
    "runAsNonRoot": _run_as_non_root,
    "fsGroup": lambda value, identity: _groups([value], identity),
    "fsGroupChangePolicy": _nothing,
    "supplementalGroups": _groups,
    "supplementalGroupsPolicy": _groups_policy,
    "allowPrivilegeEscalation": _no_new_privileges,
    "seccompProfile": _profile,
    "appArmorProfile": _profile,
    "privileged": _cannot,
    "readOnlyRootFilesystem": _cannot,
    "seLinuxOptions": _cannot,
    "seLinuxChangePolicy": _nothing,
    "windowsOptions": _cannot,
    "sysctls": _cannot,
    "procMount": _nothing,  # nothing of /proc is hidden: Unmasked is the case, and Default is the API's default
}
