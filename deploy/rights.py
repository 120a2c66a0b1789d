"""What each program may do, and what users may do with jobs: the RBAC rules of all manifests.

The rights of an operator are derived from what its kinds say of themselves, so an installation for some kinds has what
these use and nothing else. tests/integration/test_permission.py runs an operator of each kind with exactly these rights
and compares them with the requests that it sent.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from trainmaster.core.ids import EVENT, JOB, LEASE, NAMESPACE, NODE, POD, SERVICE, Resource
from trainmaster.kinds.base import Kind
from trainmaster.kinds.definition import Definition
from trainmaster.kinds.dijob.profile import PROFILES
from trainmaster.kinds.registry import DEFINITIONS
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.definition_check import DEFINITION
from trainmaster.runtime.elector import lease_name
from trainmaster.webhook.keeper import MUTATING, SECRET, VALIDATING

Object = dict[str, Any]
Rights = dict[tuple[str, str], frozenset[str]]
"""Verbs, by group and resource. A resource may have a subresource: ``dijobs/status``."""

OWN_GROUPS = frozenset(definition.resource.group for definition in DEFINITIONS)
"""Of our own resources."""
READ = frozenset({"get", "list", "watch"})
WATCH = frozenset({"list", "watch"})
WRITE = frozenset({"create", "update", "patch", "delete", "deletecollection"})
CREATED = READ | {"create", "patch", "delete"}
"""Of what the operator creates. It gets an object whose name is taken, and patches what another operator created."""
ADOPTED = READ | {"patch", "delete"}
"""Of pods that batch Jobs create. The operator gets those whose node is lost while the watch of pods is behind."""

_ORDER = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def _place(resource: Resource) -> tuple[str, str]:
    return resource.group, resource.plural


_SERVER: Rights = {
    ("", "pods"): READ,
    ("", "events"): frozenset({"create"}),
    # Whose bearer token it is, and what its owner may do.
    ("authentication.k8s.io", "tokenreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "subjectaccessreviews"): frozenset({"create"}),
}
_SERVER_OF: dict[str, Rights] = {
    "diengine.opendilab.org": {
        ("diengine.opendilab.org", "dijobs"): READ,
        ("diengine.opendilab.org", "dijobs/status"): frozenset({"patch"}),
        ("diengine.opendilab.org", "aggregatorconfigs"): frozenset({"get"}),
        # How many GPUs a node has; without this, the GPUs of a learner are not split over pods.
        ("", "nodes"): frozenset({"list"}),
        # A task that is scaled again as before. Other Events name new pods, so none of them comes twice.
        ("", "events"): frozenset({"create", "patch"}),
    },
    "nervex.sensetime.com": {
        ("nervex.sensetime.com", "nervexjobs"): READ,
        ("nervex.sensetime.com", "nervexjobs/status"): frozenset({"patch"}),
    },
}
"""Of a di-server, by the group of its jobs."""


READ_DEFINITIONS: Rights = {_place(DEFINITION): frozenset({"get"})}
"""Of operator and server. Without it they work, and do not notice that a definition lacks fields before they write
them."""


# --- programs ----------------------------------------------------------------------------------


def operator(kinds: Iterable[ResourceKinds]) -> Rights:
    """The cluster-wide rights of an operator of these kinds."""
    found: Rights = {}
    for each in kinds:
        for kind in each.kinds:
            for (group, resource), verbs in _of_kind(kind).items():
                found[group, resource] = found.get((group, resource), frozenset()) | verbs
    return found


def _of_kind(kind: Kind[Any]) -> Rights:
    group, plural = kind.resource.group, kind.resource.plural
    rights: Rights = {
        # A job that has ended is deleted when its ttlSecondsAfterFinished is over.
        (group, plural): WATCH | {"delete"},
        (group, f"{plural}/status"): frozenset({"patch"}),
    }
    if kind.blocks_owner_deletion:
        # No request uses it. Clusters with OwnerReferencesPermissionEnforcement check it for each child that has
        # blockOwnerDeletion.
        rights[group, f"{plural}/finalizers"] = frozenset({"update"})
    if kind.related:
        rights[_place(kind.related.resource)] = WATCH
    for child in children(kind):
        rights[_place(child)] = CREATED
    rights.setdefault(_place(POD), ADOPTED)
    if kind.looks_at_nodes:
        # Without it an operator works, and does not notice the loss of a node.
        rights[_place(NODE)] = WATCH
    # Without it an operator works, and counts the pods of a namespace that is deleted as lost.
    rights[_place(NAMESPACE)] = frozenset({"get"})
    rights[_place(EVENT)] = frozenset({"create", "patch"})
    if JOB in kind.children:
        # Without it an operator works, and does not notice that the pods of batch Jobs are refused.
        rights[_place(EVENT)] |= {"list"}
    return rights


def children(kind: Kind[Any]) -> tuple[Resource, ...]:
    """What the operator creates for jobs of this kind. Pods of a kind with batch Jobs are created by these."""
    return (*(() if JOB in kind.children else (POD,)), SERVICE, *kind.children)


def operator_rules(kinds: Sequence[ResourceKinds]) -> list[Object]:
    """All cluster-wide rules of an operator of these kinds. It looks which namespaces have an operator of their own."""
    leases = rules({_place(LEASE): READ}, _lease_names(kinds))
    return [*rules(operator(kinds)), *_definitions(kinds), *leases]


def _definitions(kinds: Iterable[ResourceKinds]) -> list[Object]:
    """An operator of these kinds may read the definitions that it uses."""
    used = {resource for each in kinds for resource in (each.resource, *(related.resource for related in each.related))}
    return rules(READ_DEFINITIONS, names=sorted(map(str, used)))


def server_definitions(groups: Container[str] = OWN_GROUPS) -> list[Object]:
    """A di-server for jobs of these groups may read their definitions."""
    return rules(READ_DEFINITIONS, names=[str(p.resource) for p in PROFILES if p.resource.group in groups])


def election(kinds: Iterable[ResourceKinds]) -> list[Object]:
    """What an operator of these kinds may do with Leases, in the namespace of these. A creation cannot be limited to
    names."""
    place = _place(LEASE)
    return [*rules({place: frozenset({"create"})}), *rules({place: frozenset({"get", "update"})}, _lease_names(kinds))]


def _lease_names(kinds: Iterable[ResourceKinds]) -> list[str]:
    return sorted(lease_name(each.resource) for each in kinds)


def server(groups: Container[str] = OWN_GROUPS) -> Rights:
    """Of a di-server for jobs of these groups."""
    return _SERVER | {
        place: verbs for group, own in _SERVER_OF.items() if group in groups for place, verbs in own.items()
    }


def webhook(mutating: str, validating: str) -> list[Object]:
    """What the webhook may do with its two configurations."""
    verbs = frozenset({"get", "patch"})
    return [
        rule
        for resource, name in ((MUTATING, mutating), (VALIDATING, validating))
        for rule in rules({_place(resource): verbs}, names=[name])
    ]


def certificate(secret: str) -> list[Object]:
    """What the webhook may do in its own namespace. It may not create the Secret: a creation cannot be limited to a
    name or type, and a Secret may be the token of any service account."""
    return rules({_place(SECRET): frozenset({"get", "update"})}, names=[secret])


# --- users -------------------------------------------------------------------------------------


def user_roles(definitions: Iterable[Definition], jobs: Container[Resource]) -> Iterator[tuple[str, list[Object]]]:
    """Rights that Kubernetes' own roles view and edit get, and those of a role that nobody has before it is bound. Who
    may write may read, too: a role may be bound alone, and `kubectl apply` reads.

    Nobody gets the right to write a status: the operator acts on it. What is not a job is a template for jobs of all
    namespaces, so it is for neither editors nor admins of a namespace.
    """
    roles: dict[str, Rights] = {"view": {}, "edit": {}, "admin": {}}
    for each in definitions:
        group, plural = _place(each.resource)
        writer = "edit" if each.resource in jobs else "admin"
        for role, verbs in (("view", READ), (writer, READ | WRITE)):
            roles[role] |= {(group, plural): verbs, (group, f"{plural}/status"): frozenset({"get"})}
        if each.scale:
            roles["view"][group, f"{plural}/scale"] = frozenset({"get"})
            roles["edit"][group, f"{plural}/scale"] = frozenset({"get", "update", "patch"})
    for name, rights in roles.items():
        if rights:
            yield name, rules(rights)


# --- rules -------------------------------------------------------------------------------------


def rules(rights: Rights, names: Sequence[str] = ()) -> list[Object]:
    """RBAC rules; resources of a group with the same verbs share a rule."""
    together: dict[tuple[str, frozenset[str]], list[str]] = {}
    for (group, resource), verbs in rights.items():
        together.setdefault((group, verbs), []).append(resource)
    return [
        {
            "apiGroups": [group],
            "resources": sorted(resources),
            **({"resourceNames": [*names]} if names else {}),
            "verbs": [verb for verb in _ORDER if verb in verbs],
        }
        for (group, verbs), resources in together.items()
    ]
