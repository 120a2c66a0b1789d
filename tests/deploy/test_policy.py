"""All manifests on a real API server: it accepts each of them, and refuses what our own accounts must not do.

RBAC allows some of what is tried here. What refuses it are the policies. Every write is a dry run.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deploy import manager, policy
from deploy.manager import ALL, HERE, MX, VARIANTS, Variant
from testbed.admin import MERGE, Admin, eventually, path_of
from testbed.answer import Refused
from testbed.plane import ControlPlane, KubectlFailed, User

Object = dict[str, Any]

TEAM = "team"
INSTALLATIONS = (*VARIANTS, MX, ALL)
FILES = ("crds.yaml", "rbac.yaml", "webhook.yaml", "rbac-gang.yaml", *(v.file.name for v in INSTALLATIONS))
OURS = {"app.kubernetes.io/managed-by": "trainmaster"}
LEFT = {"mxnet.mlkube.io": ""}
"""The label of what the mxnet-operator created without an owner."""
ROLES = {
    "viewer": "view",
    "editor": "edit",
    "administrator": "admin",
    "job-editor": "trainmaster-edit",
    "template-editor": "trainmaster-admin",
}
"""Which one role each user has."""
POLICY = "ValidatingAdmissionPolicy '{}'"


def account(variant: Variant, program: str) -> str:
    return f"{variant.prefix}-{program}"


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """With every manifest applied, and objects that others own."""
    accounts = {
        account(variant, program): User(f"system:serviceaccount:{variant.namespace}:{account(variant, program)}")
        for variant in INSTALLATIONS
        for program in ("operator", "webhook")
    }
    with ControlPlane(binaries=binaries, users={**accounts, **{name: User(name) for name in ROLES}}) as plane:
        plane.start_controller_manager(("clusterrole-aggregation-controller",))
        for file in FILES:
            plane.apply(HERE / file)
        plane.kubectl("create", "--filename=-", input=yaml.safe_dump_all(world()))
        yield plane


def world() -> list[Object]:
    """What is in the cluster before our accounts try to change it."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        *(binding(user, role) for user, role in ROLES.items()),
        pod("foreign"),
        pod("adopted-before", owner=owner(VARIANTS[0])),
        *(pod(f"{variant.prefix}-child", labels=OURS, owner=owner(variant)) for variant in INSTALLATIONS),
        pod("pod-of-left-job", labels=LEFT, owner=BATCH_JOB),
        pod("pod-of-foreign-job", owner=BATCH_JOB),
        config_map("foreign"),
        config_map("coredns", namespace="kube-system"),
        batch_job("left", labels=LEFT),
        batch_job("foreign"),
    ]


def binding(user: str, role: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": TEAM},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def owner(variant: Variant) -> Object:
    resource = variant.kinds[0].resource
    return reference(resource.api_version, resource.kind)


def reference(version: str, kind: str, **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "name": "some", "uid": "1-2-3", "controller": True, **more}


BATCH_JOB = reference("batch/v1", "Job")
DEPLOYMENT = reference("apps/v1", "Deployment")


def metadata(name: str, namespace: str, labels: Object | None, owner: Object | None) -> Object:
    owners = {"ownerReferences": [owner]} if owner else {}
    return {"name": name, "namespace": namespace, "labels": labels or {}, **owners}


def pod(name: str, *, labels: Object | None = None, owner: Object | None = None, namespace: str = TEAM) -> Object:
    spec = {"containers": [{"name": "main", "image": "image"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(name, namespace, labels, owner), "spec": spec}


def config_map(
    name: str, *, labels: Object | None = None, owner: Object | None = None, namespace: str = TEAM
) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name, namespace, labels, owner)}


def batch_job(name: str, *, labels: Object | None = None, owner: Object | None = None) -> Object:
    spec = {"template": {"spec": {"containers": [{"name": "main", "image": "image"}], "restartPolicy": "Never"}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(name, TEAM, labels, owner), "spec": spec}


class Write(NamedTuple):
    """One request. ``body`` is the object, or the change of the one with this name."""

    what: str
    verb: str
    resource: str
    body: Object = {}
    name: str = ""
    namespace: str | None = TEAM

    async def send(self, client: Admin) -> None:
        path = path_of(self.resource, self.namespace, self.name)
        content_type = MERGE if self.verb == "PATCH" else "application/json"
        # A deletion with a body takes its options from there.
        body = self.body if self.verb != "DELETE" else None
        await client.request(self.verb, path, body, query={"dryRun": "All"}, content_type=content_type)

    async def error(self, client: Admin) -> Refused | None:
        try:
            await self.send(client)
        except Refused as refused:
            return refused
        return None


def label(owner: Object | None = None) -> Object:
    """A change that makes an object ours."""
    owners = {"ownerReferences": [owner]} if owner else {}
    return {"metadata": {"labels": OURS, **owners}}


def made(body: Object, what: str) -> Write:
    resources = {"Pod": "pods", "ConfigMap": "configmaps", "Job": "batch/v1/jobs"}
    return Write(f"create: {what}", "POST", resources[body["kind"]], body, namespace=body["metadata"]["namespace"])


# --- operator ---


def of_its_own(variant: Variant) -> Iterator[Write]:
    mine = owner(variant)
    if variant != MX:  # there, batch Jobs create the pods
        yield made(pod("new", labels=OURS, owner=mine), "pod of a job")
        yield made(in_own_namespace(variant, pod_spec()), "pod of a job in its own namespace")
        yield Write("adopt a pod of the operator before", "PATCH", "pods", label(mine), f"{variant.prefix}-child")
    yield Write("delete a pod of a job", "DELETE", "pods", name=f"{variant.prefix}-child")
    if variant in (MX, ALL):
        yield made(batch_job("new", labels=OURS, owner=mine), "batch Job of a job")
        yield Write("adopt a batch Job without owner", "PATCH", "batch/v1/jobs", label(owner(MX)), "left")
        yield Write("adopt the pod of such a Job", "PATCH", "pods", label(), "pod-of-left-job")
        yield Write("delete the pod of such a Job", "DELETE", "pods", name="pod-of-left-job")
    if variant == ALL:
        yield made(config_map("new", labels=OURS, owner=mine), "ConfigMap of a job")


def powerful(variant: Variant) -> dict[str, Object]:
    """Fields of a pod that has the token of another program of the installation, or its keys."""
    secret = variant.webhook.secret
    container = pod_spec()["containers"][0]
    return {
        "the account of the webhook": {"serviceAccountName": account(variant, "webhook")},
        "a Secret": {"volumes": [{"name": "keys", "secret": {"secretName": secret}}]},
        "a Secret among others": {
            "volumes": [{"name": "keys", "projected": {"sources": [{"secret": {"name": secret}}]}}],
        },
        "a key in a variable": {
            "containers": [
                {
                    **container,
                    "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "tls.key"}}}],
                },
            ],
        },
        "keys in variables": {
            "initContainers": [{**container, "name": "a", "envFrom": [{"secretRef": {"name": secret}}]}]
        },
    }


def pod_spec(**fields: Any) -> Object:
    """As the namespaces of installations enforce it."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "containers": [{"name": "main", "image": "image", "securityContext": security}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        **fields,
    }


def in_own_namespace(variant: Variant, spec: Object, version: str = "v1", kind: str = "Pod") -> Object:
    where = metadata("new", variant.namespace, OURS, owner(variant))
    return {"apiVersion": version, "kind": kind, "metadata": where, "spec": spec}


def of_others(variant: Variant) -> Iterator[Write]:
    mine = owner(variant)
    yield Write("delete a foreign pod", "DELETE", "pods", name="foreign")
    yield Write("take a foreign pod", "PATCH", "pods", label(mine), "foreign")
    yield Write("take the pod of a foreign batch Job", "PATCH", "pods", label(mine), "pod-of-foreign-job")
    drop: Object = {"metadata": {"labels": dict.fromkeys(OURS)}}
    yield Write("take its label from a child", "PATCH", "pods", drop, f"{variant.prefix}-child")
    if variant != MX:
        yield made(pod("new", labels=OURS, owner=mine, namespace="kube-system"), "pod of a job in kube-system")
        yield made(pod("new", owner=mine), "pod without label")
        yield made(pod("new", labels=OURS), "pod without owner")
        yield made(pod("new", labels=OURS, owner=DEPLOYMENT), "pod of a Deployment")
        yield made(pod("new", labels=OURS, owner={**mine, "controller": False}), "pod whose controller nobody is")
        for what, fields in powerful(variant).items():
            yield made(in_own_namespace(variant, pod_spec(**fields)), f"pod in its own namespace with {what}")
    if variant in (MX, ALL):
        yield Write("take a foreign batch Job", "PATCH", "batch/v1/jobs", label(mine), "foreign")
        for what, fields in powerful(variant).items():
            template = {"spec": pod_spec(restartPolicy="Never", **fields)}
            new = in_own_namespace(variant, {"template": template}, "batch/v1", "Job")
            yield made(new, f"batch Job in its own namespace with {what}")
    if variant == ALL:
        change: Object = {"data": {"Corefile": "evil"}}
        for namespace, name in (("kube-system", "coredns"), (TEAM, "foreign")):
            what = f"ConfigMap in {namespace}"
            yield Write(f"change a {what}", "PATCH", "configmaps", change, name, namespace)
            yield Write(f"take a {what}", "PATCH", "configmaps", label(mine), name, namespace)
            yield Write(f"delete a {what}", "DELETE", "configmaps", {}, name, namespace)
        for namespace in ("kube-system", "kube-public", "kube-node-lease"):
            new = config_map("new", labels=OURS, owner=mine, namespace=namespace)
            yield made(new, f"ConfigMap of a job in {namespace}")


# --- webhook ---


def configurations(variant: Variant) -> tuple[tuple[str, str], ...]:
    group = "admissionregistration.k8s.io/v1"
    return (
        (f"{group}/mutatingwebhookconfigurations", variant.webhook.mutating),
        (f"{group}/validatingwebhookconfigurations", variant.webhook.validating),
    )


BUNDLE = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
EVERYTHING = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]
SECRET_CHANGES: dict[str, Object] = {
    "make the Secret a token": {
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "trainmaster-operator"}},
    },
    "give the Secret another owner": {"metadata": {"ownerReferences": [DEPLOYMENT]}},
    "freeze the Secret": {"immutable": True},
}
ENTRY_CHANGES: dict[str, Object] = {
    "see every write of the cluster": {"rules": EVERYTHING},
    "send reviews elsewhere": {"clientConfig": {"url": "https://evil.example/"}},
    "send reviews to another Service": {"clientConfig": {"service": {"name": "evil", "namespace": TEAM}}},
    "stop all jobs": {"failurePolicy": "Fail"},
    "see objects of other versions": {"matchPolicy": "Equivalent"},
    "be asked about no namespace": {"namespaceSelector": {"matchLabels": {"none": "none"}}},
    "be asked about no object": {"objectSelector": {"matchLabels": {"none": "none"}}},
    "be asked about nothing": {"matchConditions": [{"name": "never", "expression": "false"}]},
    "slow down every write": {"timeoutSeconds": 30},
    "act beside the answer": {"sideEffects": "NoneOnDryRun"},
}


async def changed(admin: Admin, resource: str, name: str, change: Object) -> Object:
    """The configuration with this change in its first entry."""
    stored = await admin.get(resource, None, name)
    first, *rest = stored["webhooks"]
    entry = {**first, **change}
    if "service" in change.get("clientConfig", {}) or "caBundle" in change.get("clientConfig", {}):
        entry["clientConfig"] = {**first["clientConfig"], **change["clientConfig"]}
    return {"webhooks": [entry, *rest]}


async def refused_entries(admin: Admin, variant: Variant) -> list[Write]:
    found = []
    for resource, name in configurations(variant):
        for what, change in ENTRY_CHANGES.items():
            body = await changed(admin, resource, name, change)
            found.append(Write(f"{what} ({name})", "PATCH", resource, body, name, None))
        stored = (await admin.get(resource, None, name))["webhooks"]
        more = [*stored, {**stored[0], "name": "more.evil.example", "rules": EVERYTHING}]
        found.append(Write("add an entry", "PATCH", resource, {"webhooks": more}, name, None))
        found.append(Write("remove all entries", "PATCH", resource, {"webhooks": []}, name, None))
        owned: Object = {"metadata": {"ownerReferences": [DEPLOYMENT]}}
        found.append(Write("have it deleted with another object", "PATCH", resource, owned, name, None))
    secret = variant.webhook.secret
    for what, change in SECRET_CHANGES.items():
        stored = await admin.get("secrets", variant.namespace, secret)
        merged = {**stored, **change, "metadata": {**stored["metadata"], **change.get("metadata", {})}}
        found.append(Write(what, "PUT", "secrets", merged, secret, variant.namespace))
    return found


# --- the tables ---

each_installation = pytest.mark.parametrize("variant", INSTALLATIONS, ids=lambda variant: variant.prefix)


async def assert_refused(client: Admin, write: Write, name: str) -> None:
    """By the policy, and by nothing else. The API server reads a new policy some moments later."""

    async def look() -> None:
        error = await write.error(client)
        assert error, f"it was allowed: {write.what}"
        assert (error.code, POLICY.format(name) in error.message) == (403, True), f"{write.what}: {error}"

    await eventually(look)


@each_installation
async def test_the_operator_may_write_children_of_its_jobs(plane: ControlPlane, variant: Variant) -> None:
    async with Admin.of(plane, account(variant, "operator")) as operator:
        for write in of_its_own(variant):
            assert await write.error(operator) is None, write.what


@each_installation
async def test_the_operator_may_write_nothing_of_others_and_nothing_in_kube_system(
    plane: ControlPlane, variant: Variant
) -> None:
    name = account(variant, "operator")
    async with Admin.of(plane, name) as operator:
        for write in of_others(variant):
            await assert_refused(operator, write, name)


@each_installation
async def test_the_webhook_may_write_its_certificates(plane: ControlPlane, admin: Admin, variant: Variant) -> None:
    async with Admin.of(plane, account(variant, "webhook")) as webhook:
        for resource, name in configurations(variant):
            body = await changed(admin, resource, name, {"clientConfig": {"caBundle": BUNDLE}})
            await Write("caBundle", "PATCH", resource, body, name, None).send(webhook)
        secret = await admin.get("secrets", variant.namespace, variant.webhook.secret)
        filled = {**secret, "data": {"tls.key": "c2VjcmV0"}}
        await Write("data", "PUT", "secrets", filled, secret["metadata"]["name"], variant.namespace).send(webhook)


@each_installation
async def test_the_webhook_may_change_nothing_but_its_certificates(
    plane: ControlPlane, admin: Admin, variant: Variant
) -> None:
    name = account(variant, "webhook")
    async with Admin.of(plane, name) as webhook:
        for write in await refused_entries(admin, variant):
            await assert_refused(webhook, write, name)


@each_installation
async def test_the_webhook_may_create_no_secret(plane: ControlPlane, variant: Variant) -> None:
    """One of type service-account-token would be the token of any account of the namespace."""
    annotations = {"kubernetes.io/service-account.name": account(variant, "operator")}
    token = {"metadata": {"name": "any", "annotations": annotations}, "type": "kubernetes.io/service-account-token"}
    async with Admin.of(plane, account(variant, "webhook")) as webhook:
        with pytest.raises(Refused, match="cannot create resource"):
            await webhook.create("secrets", token, variant.namespace)


async def test_the_policy_compares_every_field_of_an_entry_that_the_api_server_knows(admin: Admin) -> None:
    found = await admin.request("GET", "/openapi/v3/apis/admissionregistration.k8s.io/v1")
    schemas = found["components"]["schemas"]
    prefix = "io.k8s.api.admissionregistration.v1"
    fields = {
        field for kind in ("Mutating", "Validating") for field in schemas[f"{prefix}.{kind}Webhook"]["properties"]
    }

    assert {*policy.WEBHOOK_FIELDS} == fields - {"name", "clientConfig"}
    assert {*policy.CLIENT_FIELDS} == schemas[f"{prefix}.WebhookClientConfig"]["properties"].keys() - {"caBundle"}


async def test_others_are_not_bound_by_the_policies(plane: ControlPlane, admin: Admin) -> None:
    await Write("a foreign pod", "DELETE", "pods", name="foreign").send(admin)
    await made(pod("new", namespace="kube-system"), "pod in kube-system").send(admin)


async def test_the_pods_of_every_installation_meet_the_standard_of_their_namespace(admin: Admin) -> None:
    for variant in (*VARIANTS, MX):
        deployments = [body for body in manager.bodies(variant) if body["kind"] == "Deployment"]
        assert deployments
        for body in deployments:
            name, new = body["metadata"]["name"], {**body["spec"]["template"], "kind": "Pod", "apiVersion": "v1"}
            new["metadata"] = {**new["metadata"], "name": name, "namespace": variant.namespace}
            await made(new, name).send(admin)


# --- users ---


DO = {
    "read jobs": ("get", "dijobs.diengine.opendilab.org", ""),
    "create jobs": ("create", "dijobs.diengine.opendilab.org", ""),
    "delete jobs": ("delete", "mxjobs.kubeflow.org", ""),
    "scale jobs": ("update", "aitrainingjobs.elasticdeeplearning.ai", "scale"),
    "read a status": ("get", "mxjobs.mxnet.mlkube.io", "status"),
    "write a status": ("patch", "dijobs.diengine.opendilab.org", "status"),
    "read templates for all jobs": ("list", "aggregatorconfigs.nervex.sensetime.com", ""),
    "write templates for all jobs": ("update", "aggregatorconfigs.nervex.sensetime.com", ""),
}
READS = {"read jobs", "read a status"}
EDITS = READS | {"create jobs", "delete jobs", "scale jobs"}
READS_TEMPLATES = {"read templates for all jobs"}


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        ("viewer", READS | READS_TEMPLATES),
        ("editor", EDITS | READS_TEMPLATES),
        ("administrator", EDITS | READS_TEMPLATES),
        ("job-editor", EDITS),
        ("template-editor", READS_TEMPLATES | {"write templates for all jobs"}),
    ],
)
async def test_the_roles_of_kubernetes_include_jobs_and_never_their_status_and_each_of_ours_is_enough_alone(
    plane: ControlPlane, user: str, allowed: set[str]
) -> None:
    def may(verb: str, resource: str, subresource: str) -> bool:
        words = (
            "auth",
            "can-i",
            verb,
            resource,
            f"--namespace={TEAM}",
            *([f"--subresource={subresource}"] * bool(subresource)),
        )
        try:
            return plane.kubectl(*words, user=user).strip() == "yes"
        except KubectlFailed:
            return False  # it says no, and ends with 1

    async def aggregated() -> None:
        assert {what for what, words in DO.items() if await asyncio.to_thread(may, *words)} == allowed

    await eventually(aggregated)


# --- applying them again ---


@pytest.mark.parametrize("how", [("apply",), ("apply", "--server-side", "--force-conflicts")], ids=" ".join)
async def test_a_manifest_that_is_applied_again_leaves_the_data_of_the_secret(
    plane: ControlPlane, admin: Admin, how: tuple[str, ...]
) -> None:
    data = {"tls.key": "c2VjcmV0"}
    secret = await admin.get("secrets", ALL.namespace, ALL.webhook.secret)
    await admin.replace("secrets", {**secret, "data": data})
    await asyncio.to_thread(plane.kubectl, *how, f"--filename={HERE / 'webhook.yaml'}")

    assert (await admin.get("secrets", ALL.namespace, ALL.webhook.secret))["data"] == data
