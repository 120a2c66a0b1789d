"""What RBAC cannot say about our own programs: ValidatingAdmissionPolicies for their service accounts.

RBAC grants a verb on a resource in all namespaces, for all objects and fields. The policies here bound what somebody
can do who has the token of the operator or of the webhook. They match no other user.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deploy import PART_OF, rights
from deploy.rights import Object
from trainmaster.core.ids import JOB, POD, Resource
from trainmaster.core.template import MANAGED_BY
from trainmaster.kinds.base import Kind
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.lifecycle.gang import PLUGINS_GROUP, VOLCANO_GROUP
from trainmaster.webhook.keeper import MUTATING, SECRET, VALIDATING

API = "admissionregistration.k8s.io/v1"
SYSTEM = ("kube-system", "kube-public", "kube-node-lease")
"""Namespaces of the cluster itself. Their ConfigMaps and service accounts are worth cluster-admin."""

_CHANGES = ("CREATE", "UPDATE", "DELETE")
_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")
WEBHOOK_FIELDS = (
    "rules",
    "failurePolicy",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
    "sideEffects",
    "timeoutSeconds",
    "admissionReviewVersions",
    "matchConditions",
    "reinvocationPolicy",
)
"""All fields of an entry besides ``name`` and ``clientConfig``."""
CLIENT_FIELDS = ("service", "url")
"""All fields of ``clientConfig`` besides ``caBundle``."""


def operator(name: str, namespace: str, kinds: Iterable[ResourceKinds]) -> Iterator[Object]:
    """The operator writes children of its jobs and nothing else, and none in the namespaces of the cluster. In its own
    namespace no pod gets the token or the keys of another program."""
    driven = [kind for each in kinds for kind in each.kinds]
    children = {POD, *(child for kind in driven for child in rights.children(kind)), VOLCANO_GROUP, PLUGINS_GROUP}
    validations = [
        _rule(
            f"!(request.namespace in {_list(SYSTEM)})",
            f"the operator writes nothing in {', '.join(SYSTEM)}; create the job in another namespace",
        ),
        _rule(
            f"object == null || {_is_labelled('object')} && ({_is_child('object', driven)})",
            "the operator creates and keeps only objects with its label and a job of its kinds as their controller",
        ),
        _rule(
            f"oldObject == null || {_is_child('oldObject', driven, is_unowned=True)}",
            "the operator changes and deletes only objects whose controller is a job of its kinds",
        ),
        _rule(
            f"request.namespace != '{namespace}' || object == null || !(request.kind.kind in ['Job', 'Pod']) || "
            f"{_has_no_power('variables.pod')}",
            f"in {namespace} the operator creates no pod with a service account or Secret; create the job in another "
            "namespace",
        ),
    ]
    pod = "request.kind.kind == 'Job' ? object.spec.template.spec : object.spec"
    yield from _policy(name, namespace, _matched(children, _CHANGES), validations, {"pod": pod})


def _has_no_power(pod: str) -> str:
    """True of the spec of a pod with the account that every namespace has, and without Secrets."""
    containers = f"({pod}.containers + {pod}.?initContainers.orValue([]))"
    in_volume = "has(v.secret) || v.?projected.?sources.orValue([]).exists(s, has(s.secret))"
    in_env = "c.?env.orValue([]).exists(e, e.?valueFrom.?secretKeyRef.hasValue())"
    in_env_from = "c.?envFrom.orValue([]).exists(e, has(e.secretRef))"
    return (
        f"{pod}.?serviceAccountName.orValue('default') in ['', 'default'] && "
        f"!{pod}.?volumes.orValue([]).exists(v, {in_volume}) && "
        f"!{containers}.exists(c, {in_env} || {in_env_from})"
    )


def _is_labelled(name: str) -> str:
    return " && ".join(
        f"{name}.metadata.?labels[?'{key}'] == optional.of('{value}')" for key, value in MANAGED_BY.items()
    )


def _is_child(name: str, kinds: Iterable[Kind[Any]], *, is_unowned: bool = False) -> str:
    """True of objects whose controller is a job. The batch Jobs of a kind own its pods; those of its ancestor, and its
    services, have the ancestor's label and, until they are adopted, no owner."""
    driven = [*kinds]
    references = f"{name}.metadata.?ownerReferences.orValue([])"
    resources = dict.fromkeys((k.resource.kind, k.resource.group) for k in driven)
    jobs = " || ".join(f"r.kind == '{kind}' && r.apiVersion.startsWith('{group}/')" for kind, group in resources)
    ways = [f"{references}.exists(r, r.?controller == optional.of(true) && ({jobs}))"]
    for label in sorted({k.predecessor.labels for k in driven if k.predecessor and JOB in k.children}):
        key, _, value = label.partition("=")
        owners = [f"{references}.exists(r, r.kind == '{JOB.kind}' && r.apiVersion == '{JOB.api_version}')"]
        owners += [f"size({references}) == 0"] if is_unowned else []
        ways.append(f"{name}.metadata.?labels[?'{key}'] == optional.of('{value}') && ({' || '.join(owners)})")
    return " || ".join(ways)


def webhook(name: str, namespace: str) -> Iterator[Object]:
    """The webhook writes its certificates: the data of a Secret and the caBundle of its configurations."""
    is_same = "the webhook changes only the caBundle of its configurations and the data of its Secret"
    kept = [f"w.?{field} == o.?{field}" for field in WEBHOOK_FIELDS]
    kept += [f"w.clientConfig.?{field} == o.clientConfig.?{field}" for field in CLIENT_FIELDS]
    entry = f"object.webhooks.exists_one(w, w.name == o.name && {' && '.join(kept)})"
    validations = [
        _rule(" && ".join(f"object.metadata.?{each} == oldObject.metadata.?{each}" for each in _METADATA), is_same),
        _rule("object.?type == oldObject.?type && object.?immutable == oldObject.?immutable", is_same),
        _rule(
            "object.?webhooks.hasValue() == oldObject.?webhooks.hasValue() && (!object.?webhooks.hasValue() || "
            f"size(object.webhooks) == size(oldObject.webhooks) && oldObject.webhooks.all(o, {entry}))",
            is_same,
        ),
    ]
    yield from _policy(name, namespace, _matched((MUTATING, SECRET, VALIDATING), ("UPDATE",)), validations)


# --- parts -------------------------------------------------------------------------------------


def _policy(
    account: str,
    namespace: str,
    matched: list[Object],
    validations: list[Object],
    variables: Mapping[str, str] | None = None,
) -> Iterator[Object]:
    named = [{"name": name, "expression": expression} for name, expression in (variables or {}).items()]
    user = f"system:serviceaccount:{namespace}:{account}"
    yield {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": account, "labels": PART_OF},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": matched},
            "matchConditions": [{"name": "is-the-account", "expression": f"request.userInfo.username == '{user}'"}],
            **({"variables": named} if named else {}),
            "validations": validations,
        },
    }
    yield {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": account, "labels": PART_OF},
        "spec": {"policyName": account, "validationActions": ["Deny"]},
    }


def _rule(expression: str, message: str) -> Object:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _matched(resources: Iterable[Resource], operations: Iterable[str]) -> list[Object]:
    plurals: dict[str, list[str]] = {}
    for resource in resources:
        plurals.setdefault(resource.group, []).append(resource.plural)
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": [*operations],
            "resources": sorted({*plurals[group]}),
        }
        for group in sorted(plurals)
    ]


def _list(words: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"
