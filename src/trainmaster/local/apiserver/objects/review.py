"""Questions about users: who am I, what may I do, whose token is this. There is one user, who may do everything.

A review is answered and not stored. Answers are those of kube-apiserver to a member of ``system:masters``.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.core.ids import Resource
from trainmaster.local.apiserver.http.status import bad_request, invalid
from trainmaster.local.apiserver.objects import admit
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.objects.state import State

Object = dict[str, Any]

USER: Object = {"username": "trainmaster", "groups": ["system:masters", "system:authenticated"]}
AUDIENCE = "https://kubernetes.default.svc"
_ALL = ["*"]


def answer(state: State, served: Served, body: Any, token: str, validation: str) -> tuple[Object, tuple[str, ...]]:
    """The review in the body, with its status, and warnings; raises Refusal. ``token`` is that of the one user."""
    review, unknown = admit.read(state, served, body)
    warnings = admit.judge(served, unknown, validation)
    review["status"] = _ANSWERS[served.resource.kind](served.resource, review.setdefault("spec", {}), token)
    if served.resource.kind == "SelfSubjectReview":
        del review["spec"]
        review["metadata"]["creationTimestamp"] = state.timestamp()
    return review, warnings


def _access(resource: Resource, spec: Object, _: str) -> Object:
    if ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        wrong = cause.invalid("spec.resourceAttributes", spec.get("resourceAttributes"), why)
        raise invalid(resource, "", [wrong])
    return {"allowed": True}


def _rules(_: Resource, spec: Object, __: str) -> Object:
    if not spec.pop("namespace", ""):  # kube-apiserver does not repeat it, either
        raise bad_request("no namespace on request")
    return {
        "resourceRules": [{"verbs": _ALL, "apiGroups": _ALL, "resources": _ALL}],
        "nonResourceRules": [{"verbs": _ALL, "nonResourceURLs": _ALL}],
        "incomplete": False,
    }


def _self(_: Resource, __: Object, ___: str) -> Object:
    return {"userInfo": USER}


def _token(_: Resource, spec: Object, token: str) -> Object:
    asked, audiences = spec.get("token", ""), spec.get("audiences") or [AUDIENCE]
    if not asked:
        raise bad_request("token is required for TokenReview in authentication")
    if AUDIENCE in audiences and hmac.compare_digest(asked.encode(), token.encode()):
        return {"authenticated": True, "user": USER, "audiences": [AUDIENCE]}
    return {"user": {}, "error": "invalid bearer token"}


_ANSWERS: Mapping[str, Callable[[Resource, Object, str], Object]] = {
    "SelfSubjectAccessReview": _access,
    "SelfSubjectRulesReview": _rules,
    "SelfSubjectReview": _self,
    "TokenReview": _token,
}
