"""What a kind says about its CustomResourceDefinition in ``kinds/<kind>/crd.py``: names, columns, CEL rules.

The columns and rules that several kinds have are here, too.
"""

import msgspec

from trainmaster.core.ids import Resource
from trainmaster.core.plan import MAX_REPLICAS
from trainmaster.kinds.base import MANAGED_BY_CHANGED
from trainmaster.kinds.schema import Rule, Rules

DIGITS = 4
"""Of the highest index: a role has at most 10 000 pods."""


class Column(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A column of ``kubectl get``; from priority 1 on only with ``-o wide``."""

    name: str
    type: str
    json_path: str
    priority: int = 0


class Scale(msgspec.Struct, frozen=True, rename="camel"):
    """The fields through which ``kubectl scale`` and autoscalers change a number of replicas."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str


class Version(msgspec.Struct, frozen=True):
    """Another served version of a resource, with columns of its own. All versions have one schema, so that no
    conversion is needed."""

    name: str
    columns: tuple[Column, ...]


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What the CustomResourceDefinition of one resource has beside its schema. The version of ``resource`` is the one
    that is stored."""

    resource: Resource
    job: type[msgspec.Struct]
    """The wire type, from which the schema is generated."""
    columns: tuple[Column, ...]
    rules: Rules = {}
    short_name: str = ""
    categories: tuple[str, ...] = ("all",)
    """``kubectl get all`` lists the kinds of the category ``all``."""
    scale: Scale | None = None
    other_versions: tuple[Version, ...] = ()

    @property
    def versions(self) -> tuple[Version, ...]:
        """All served versions; the stored one is the first."""
        return (Version(self.resource.version, self.columns), *self.other_versions)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resource in each served version."""
        return tuple(msgspec.structs.replace(self.resource, version=version.name) for version in self.versions)


PHASE = Column("Phase", "string", ".status.phase")
# Kubeflow's name of the phase.
STATE = Column("State", "string", ".status.phase")
AGE = Column("Age", "date", ".metadata.creationTimestamp")
SUMMARY = (
    Column("Ready", "string", ".status.summary.ready"),
    Column("Restarts", "integer", ".status.summary.restarts"),
    Column("Message", "string", ".status.summary.message", priority=1),
)
"""The same for every kind. They follow the columns of the older operators, whose order clients may depend on."""

# Every rule accepts what was stored before the rule existed, as long as it does not change: the operator must be able
# to write into the status of such a job what is wrong with it, and the garbage collector to remove its finalizers. The
# API server does not check again what did not change, but treats every object with a field that is not in the schema
# as changed, and every template has one.
NAME = "self.metadata.name"
IS_OLD = "oldSelf.hasValue()"
SERVICE_NAME = Rule(
    rule=f"{IS_OLD} || {NAME}.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    path=".metadata.name",
    message=(
        "must start with a letter and consist of lower-case letters, digits and '-': "
        "it becomes part of the names of services; rename the job"
    ),
)
MANAGED_BY = Rule(
    rule=(
        "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)"
    ),
    path=".managedBy",
    message=MANAGED_BY_CHANGED,
    is_about_changes=True,
)


def few_replicas(counts: str, path: str, fields: str = "replicas") -> Rule:
    """The replicas of all roles together; ``counts`` is a list of numbers, seen from the spec. A job that was stored
    with more may keep them, or have fewer. Seen from the map of roles itself the rule would be refused: the API server
    does not know how many entries ``oldSelf.value()`` can have."""
    total, old_total = f"{counts}.sum()", f"{counts.replace('self', 'oldSelf.value()')}.sum()"
    limit = f"and a job may have {MAX_REPLICAS}; lower {fields}"
    return Rule(
        rule=f"{total} <= {MAX_REPLICAS} || {IS_OLD} && {total} <= {old_total}",
        path=path,
        message=f"the replicas of all roles add up to too many, {limit}",
        detail=f"'the replicas of all roles add up to %d, {limit}'.format([{total}])",
    )


# For a map of roles, in a loop over their names n.
IS_OLD_NAME = "oldSelf[?n].hasValue()"
_IS_UNIQUE = "self.exists_one(m, m.lowerAscii() == n.lowerAscii())"
UNIQUE_NAMES = Rule(
    rule=f"self.all(n, {_IS_UNIQUE} || {IS_OLD_NAME})",
    message="two names differ only in case; rename one of them",
    detail=f"'%s differ only in case; rename all but one'.format([self.filter(n, !{_IS_UNIQUE})])",
)
