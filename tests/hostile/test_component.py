"""A component of ours in the wrong hands: what its service account may not do. All requests are dry runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.admin import MERGE, Admin, eventually, path_of
from testbed.answer import Object, Refused
from testbed.operator import install
from testbed.plane import ControlPlane, User
from tests.hostile.attack import MANAGED
from tests.hostile.installation import SYSTEM
from tests.integration.test_webhook import SECRET, WEBHOOK, by_url
from trainmaster.settings import OPERATOR

STRATEGIC = "application/strategic-merge-patch+json"
POD: Object = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
PRIVILEGED: Object = {
    "metadata": {"name": "x"},
    "spec": {**POD["spec"], "hostPID": True, "serviceAccountName": "admin"},
}
CONFIG_MAP: Object = {"metadata": {"name": "x", "labels": MANAGED}, "data": {"x": "y"}}
TOKEN_SECRET: Object = {
    "metadata": {
        "name": SECRET,
        "annotations": {"kubernetes.io/service-account.name": "trainmaster-operator"},
    },
    "type": "kubernetes.io/service-account-token",
}
EVERYTHING: Object = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*/*"],
    "operations": ["*"],
}
BINDING: Object = {
    "metadata": {"name": "x"},
    "subjects": [{"kind": "ServiceAccount", "name": "trainmaster-operator", "namespace": SYSTEM}],
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
}
CONFIGURATIONS = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
BINDINGS = "rbac.authorization.k8s.io/v1/clusterrolebindings"


@dataclass(frozen=True)
class Request:
    """``verb`` is an HTTP method."""

    verb: str
    path: str
    body: Object | None = None


FORBIDDEN = {
    "operator": {
        "reads-secrets": Request("GET", path_of("secrets", SYSTEM)),
        "binds-cluster-admin": Request("POST", path_of(BINDINGS), BINDING),
        "runs-commands-in-pods": Request("POST", path_of("pods", "default", "x", "exec")),
        "creates-pods-in-kube-system": Request("POST", path_of("pods", "kube-system"), POD),
        "creates-config-maps-in-kube-system": Request("POST", path_of("configmaps", "kube-system"), CONFIG_MAP),
        "changes-config-maps-of-others": Request(
            "PATCH", path_of("configmaps", "default", "foreign"), {"data": {"x": "changed"}}
        ),
        "creates-pods-without-a-job": Request("POST", path_of("pods", "default"), POD),
        "deletes-pods-of-others": Request("DELETE", path_of("pods", "default", "foreign")),
        "takes-leases-of-others": Request(
            "PUT",
            path_of("coordination.k8s.io/v1/leases", OPERATOR.lease_namespace, "foreign"),
            {"metadata": {"name": "foreign"}, "spec": {"holderIdentity": "me"}},
        ),
    },
    "server": {
        "creates-pods": Request("POST", path_of("pods", "default"), PRIVILEGED),
        "reads-secrets": Request("GET", path_of("secrets", SYSTEM)),
        "changes-the-spec-of-jobs": Request(
            "PATCH", path_of("diengine.opendilab.org/v1alpha1/dijobs", "default", "x"), {"spec": {}}
        ),
        "deletes-jobs": Request("DELETE", path_of("diengine.opendilab.org/v1alpha1/dijobs", "default", "x")),
        "changes-aggregator-templates": Request(
            "PATCH", path_of("diengine.opendilab.org/v1alpha1/aggregatorconfigs", "default", "x"), {"spec": {}}
        ),
        "writes-config-maps": Request("POST", path_of("configmaps", "default"), CONFIG_MAP),
    },
    WEBHOOK: {
        "creates-a-token-of-the-operator": Request("POST", path_of("secrets", SYSTEM), TOKEN_SECRET),
        "makes-its-secret-a-token": Request(
            "PUT", path_of("secrets", SYSTEM, SECRET), TOKEN_SECRET | {"metadata": {**TOKEN_SECRET["metadata"]}}
        ),
        "reads-other-secrets": Request("GET", path_of("secrets", SYSTEM)),
        "is-asked-about-everything": Request(
            "PATCH",
            path_of(CONFIGURATIONS, None, "trainmaster"),
            {"webhooks": [{"name": "mdijob.kb.io", "rules": [EVERYTHING]}]},
        ),
        "is-asked-at-another-address": Request(
            "PATCH",
            path_of(CONFIGURATIONS, None, "trainmaster"),
            {"webhooks": [{"name": "mdijob.kb.io", "clientConfig": {"url": "https://127.0.0.1:1/"}}]},
        ),
        "creates-configurations": Request("POST", path_of(CONFIGURATIONS), {"metadata": {"name": "x"}}),
        "creates-pods": Request("POST", path_of("pods", "default"), POD),
    },
}
CASES = [(user, what) for user, requests in FORBIDDEN.items() for what in requests]


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    users = {WEBHOOK: User(f"system:serviceaccount:{SYSTEM}:trainmaster-webhook")}
    with ControlPlane(binaries=binaries, users=users) as plane:
        install(plane)
        plane.apply(by_url(1))
        for resource, body in (("pods", POD), ("configmaps", CONFIG_MAP), ("coordination.k8s.io/v1/leases", {})):
            space = OPERATOR.lease_namespace if "leases" in resource else "default"
            plane.request("POST", path_of(resource, space), body | {"metadata": {"name": "foreign"}})
        yield plane


@pytest.mark.parametrize(("user", "what"), CASES, ids=[f"{user}-{what}" for user, what in CASES])
async def test_a_component_may_not(user: str, what: str, plane: ControlPlane) -> None:
    asked = FORBIDDEN[user][what]

    async def look() -> None:  # policies of admission take a moment until they are enforced
        async with Admin.of(plane, user) as client:
            answer = await _answer(client, asked)
        assert answer.startswith("403") or re.search("ValidatingAdmissionPolicy|field is immutable", answer), answer

    await eventually(look)


async def _answer(client: Admin, asked: Request) -> str:
    content = "application/json"
    if asked.verb == "PATCH":
        content = STRATEGIC if "webhooks" in (asked.body or {}) else MERGE
    query = {"dryRun": "All"} if asked.verb != "GET" else None
    try:
        await client.request(asked.verb, asked.path, asked.body, query=query, content_type=content)
    except Refused as refused:
        return str(refused)
    return "allowed"
