"""Generates the manifests beside this file: install.yaml, the installation for all kinds, di-manager.yaml,
nervex-manager.yaml and mx-manager.yaml, each for the kinds of one ancestor, and rbac.yaml and webhook.yaml, the rights
and the webhooks for programs that you run yourself.

    python -m deploy.manager

Everything has one source: the definitions come from ``kinds.crd``, the rights from ``deploy.rights``, the policies from
``deploy.policy``. Of all these an installation gets what belongs to its own kinds.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from deploy import PART_OF, policy, rights
from deploy.rights import OWN_GROUPS, Object
from trainmaster.kinds.base import Settings
from trainmaster.kinds.crd import crd
from trainmaster.kinds.registry import DEFINITIONS, all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.settings import OPERATOR, SYSTEM_NAMESPACE, WEBHOOK
from trainmaster.webhook.path import Phase, path_of

HERE = Path(__file__).parent
RBAC_GROUP = "rbac.authorization.k8s.io"
SERVER_PORT = 8080
V1_1_SERVER_PORT = 8081
"""Where clients of DI-orchestrator v1.1 look for di-server."""
WEBHOOK_PORT = 9443
PRIORITY = 1_000_000_000
"""The highest value of a PriorityClass that is not Kubernetes' own: no training pod preempts the operator."""
FLOW_CONTROL = "flowcontrol.apiserver.k8s.io/v1"
FLOW_SHARES = 100
"""Part of the API server's concurrency, as all other service accounts have it together (workload-low)."""
LOST_NODE_SECONDS = 20
"""After which a pod on a node that is lost or not ready is replaced. Kubernetes' default is five minutes."""
METRICS_NAMESPACES = {"metrics": "enabled"}
"""The label of namespaces whose pods may read metrics, as kubebuilder's projects have it."""


class WebhookNames(NamedTuple):
    service: str
    secret: str
    mutating: str
    validating: str


@dataclass(frozen=True)
class Variant:
    """An installation. ``prefix`` begins all names, as the ancestor of that name had them."""

    prefix: str
    group: str = ""
    """Of its kinds; empty for all kinds."""
    scheme: str = ""
    """The kind of job that its operator drives and its server serves; empty for all."""
    has_server: bool = True
    """Its jobs ask di-server for replicas."""
    server_replicas: int = 1
    """As many as the ancestor had."""
    has_v2: bool = False
    """di-server is also where clients of DI-orchestrator v1.1 look for it."""

    @property
    def namespace(self) -> str:
        return f"{self.prefix}-system"

    @property
    def file(self) -> Path:
        return HERE / (f"{self.prefix}-manager.yaml" if self.group else "install.yaml")

    @property
    def server_ports(self) -> dict[str, int]:
        """Of the Service of di-server, which listens on one port."""
        return {"http": SERVER_PORT} | ({"http-v2": V1_1_SERVER_PORT} if self.has_v2 else {})

    @property
    def groups(self) -> frozenset[str]:
        return frozenset({self.group}) if self.group else OWN_GROUPS

    @property
    def kinds(self) -> tuple[ResourceKinds, ...]:
        return tuple(each for each in all_resource_kinds(Settings()) if each.resource.group in self.groups)

    @property
    def webhook(self) -> WebhookNames:
        if self.namespace == SYSTEM_NAMESPACE:  # the defaults of the program
            names = WEBHOOK.configuration, WEBHOOK.configuration
            return WebhookNames(WEBHOOK.service_name, WEBHOOK.secret_name, *names)
        configurations = [self.name(f"{phase}-webhook-configuration") for phase in ("mutating", "validating")]
        return WebhookNames(self.name("webhook-service"), self.name("webhook-server-cert"), *configurations)

    def name(self, part: str) -> str:
        return f"{self.prefix}-{part}"


VARIANTS = (
    Variant("di", "diengine.opendilab.org", "dijob", has_v2=True),
    Variant("nervex", "nervex.sensetime.com", "nervexjob"),
)
"""Those with di-server."""
MX = Variant("mx", "mxnet.mlkube.io", "mxjob.mxnet.mlkube.io", has_server=False)
ALL = Variant(SYSTEM_NAMESPACE.removesuffix("-system"), server_replicas=2, has_v2=True)
"""All kinds."""


def image() -> str:
    """One image for all three; docs/install.md says how to name another one."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    return f"{project['name']}:{project['version']}"


def bodies(variant: Variant) -> list[Object]:
    """All objects of an installation, in an order in which each finds what it needs."""
    return [
        _namespace(variant),
        *(crd(definition) for definition in DEFINITIONS if definition.resource.group in variant.groups),
        *_rights(variant),
        *_webhook_rights(variant),
        *_user_roles(variant),
        _priority(variant),
        *_flow_control(variant),
        *_services(variant),
        *_network_policies(variant),
        *(_deployment(variant, program) for program in _programs(variant)),
        *(_budget(variant, program) for program in _programs(variant)),
        *_webhooks(variant),
    ]


def rbac(variant: Variant) -> list[Object]:
    """The rights of operator and server, and of users."""
    return [_namespace(variant), *_rights(variant), *_user_roles(variant), *_flow_control(variant)]


def admission(variant: Variant) -> list[Object]:
    """The webhooks, and the rights of the program behind them."""
    service = _webhook_service(variant, WEBHOOK_PORT)  # by its number: the Deployment is the user's
    return [_namespace(variant), *_webhook_rights(variant), service, *_webhooks(variant)]


_GENERATED = "# Generated by deploy/manager.py: change it there, then run `make generate`."
_RBAC = """
#
# What operator, di-server and users may do. The operator and di-server get exactly the verbs that they use, which
# tests/integration proves in both directions.
# For an operator of one namespace (--namespace), bind the ClusterRole with a RoleBinding there instead.
"""
_ADMISSION = """
#
# Admission: `trainmaster webhook --run-in-cluster` behind this Service defaults and checks jobs before they are stored.
# It writes the caBundle of both configurations itself; docs/admission.md says how to use cert-manager instead.
#
# A webhook that is down blocks no request: the rules match our own resources, and failurePolicy is Ignore, since the
# definitions check most of it and the operator all of it again.
"""


def to_yaml(variant: Variant) -> str:
    file = f"deploy/{variant.file.name}"
    remove = f"kubectl delete --ignore-not-found -f {file}"
    head = f"""
#
#   kubectl {"create" if variant.group else "apply"} -f {file}
#
# docs/install.md says how to use another image. To remove everything except the definitions and the jobs:
#
#   {remove} --selector {"=".join(*PART_OF.items())}
#
# Without the selector the definitions are deleted, and with them every job of every namespace:
#
#   {remove}
"""
    return _manifest(head, bodies(variant))


def manifests() -> dict[Path, str]:
    """All files that are generated here, and their content."""
    return {
        **{variant.file: to_yaml(variant) for variant in (ALL, *VARIANTS, MX)},
        HERE / "rbac.yaml": _manifest(_RBAC, rbac(ALL)),
        HERE / "webhook.yaml": _manifest(_ADMISSION, admission(ALL)),
    }


def _manifest(head: str, objects: Sequence[Object]) -> str:
    documents = yaml.dump_all(objects, Dumper=Dumper, explicit_start=True, sort_keys=False, width=118)
    return f"{_GENERATED}{head}{documents}"


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True  # anchors are legal, but nobody wants to read them in a diff


def _body(version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    labels = more.pop("labels", {})
    metadata = {"name": name, **place, "labels": {**PART_OF, **labels}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _namespace(variant: Variant) -> Object:
    """No pod gets into it that could do more than ours."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    return _body("v1", "Namespace", variant.namespace, labels=labels)


# --- rights ------------------------------------------------------------------------------------


def _rights(variant: Variant) -> Iterator[Object]:
    """Of operator and server. Each policy comes before the rights that it bounds."""
    name = variant.name("operator")
    yield _account(variant, name)
    yield from policy.operator(name, variant.namespace, variant.kinds)
    yield from _granted(variant, name, name, rights.operator_rules(variant.kinds))
    election, place = rights.election(variant.kinds), OPERATOR.lease_namespace
    yield from _granted(variant, name, variant.name("operator-election"), election, place)
    if variant.has_server:
        server = variant.name("server")
        yield _account(variant, server)
        rules = [*rights.rules(rights.server(variant.groups)), *rights.server_definitions(variant.groups)]
        yield from _granted(variant, server, server, rules)


def _webhook_rights(variant: Variant) -> Iterator[Object]:
    """The Secret has no data: an apply leaves that to the webhook, which fills it."""
    name, names = variant.name("webhook"), variant.webhook
    yield _account(variant, name)
    yield _body("v1", "Secret", names.secret, variant.namespace, type="Opaque")
    yield from policy.webhook(name, variant.namespace)
    yield from _granted(variant, name, name, rights.webhook(names.mutating, names.validating))
    yield from _granted(variant, name, name, rights.certificate(names.secret), variant.namespace)


def _account(variant: Variant, name: str) -> Object:
    return _body("v1", "ServiceAccount", name, variant.namespace)


def _granted(variant: Variant, account: str, role: str, rules: Sequence[Object], place: str = "") -> Iterator[Object]:
    """A role, and that an account has it: in one namespace, or in all."""
    kind = "Role" if place else "ClusterRole"
    yield _body(f"{RBAC_GROUP}/v1", kind, role, place, rules=list(rules))
    yield _body(
        f"{RBAC_GROUP}/v1",
        f"{kind}Binding",
        role,
        place,
        roleRef={"apiGroup": RBAC_GROUP, "kind": kind, "name": role},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": variant.namespace}],
    )


def _user_roles(variant: Variant) -> Iterator[Object]:
    """Kubernetes adds the rules of view and edit to its own roles of these names. Admin is not added: templates for all
    namespaces are not for the admin of one. It is bound to whoever maintains them."""
    jobs = {each.resource for each in variant.kinds}
    definitions = [each for each in DEFINITIONS if each.resource.group in variant.groups]
    for role, rules in rights.user_roles(definitions, jobs):
        labels = {} if role == "admin" else {f"{RBAC_GROUP}/aggregate-to-{role}": "true"}
        yield _body(f"{RBAC_GROUP}/v1", "ClusterRole", variant.name(role), labels=labels, rules=rules)


# --- programs ----------------------------------------------------------------------------------


class Program(NamedTuple):
    """A Deployment of one container."""

    name: str
    args: Sequence[str]
    ports: Mapping[str, int]
    health: str
    """The name of the port that answers /healthz and /readyz."""
    requests: Mapping[str, str]
    memory: str
    """Its limit. There is none for processor time: an operator that is throttled loses its lease."""
    replicas: int = 2
    """All of them answer; of operators, one leads."""
    env: Sequence[Object] = ()


def _programs(variant: Variant) -> Iterator[Program]:
    names = variant.webhook
    server = f"--server-url={variant.name('server')}.{variant.namespace}:{SERVER_PORT}"
    yield Program(
        variant.name("operator"),
        [
            "operator",
            "--run-in-cluster",
            *_scheme(variant),
            *([server] if variant.has_server else []),
            *_templates(variant),
            "--metrics-bind-address=:8080",
            "--health-probe-bind-address=:8081",
        ],
        {"metrics": 8080, "health": 8081},
        "health",
        {"cpu": "100m", "memory": "128Mi"},
        "512Mi",
        # A restarted container is the same candidate for the Leases as before.
        env=[{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
    )
    if variant.has_server:
        yield _server(variant)
    yield Program(
        variant.name("webhook"),
        [
            "webhook",
            "--run-in-cluster",
            f"--bind-address=:{WEBHOOK_PORT}",
            f"--service-name={names.service}",
            f"--secret-name={names.secret}",
            f"--mutating-configuration={names.mutating}",
            f"--validating-configuration={names.validating}",
            "--metrics-bind-address=:8080",
            "--health-probe-bind-address=:8081",
        ],
        {"webhook": WEBHOOK_PORT, "metrics": 8080, "health": 8081},
        "health",
        {"cpu": "30m", "memory": "96Mi"},
        "256Mi",
    )


def _server(variant: Variant) -> Program:
    return Program(
        variant.name("server"),
        [
            "server",
            "--run-in-cluster",
            *_scheme(variant),
            f"--bind-address=:{SERVER_PORT}",
            *_templates(variant),
        ],
        {"http": SERVER_PORT},
        "http",
        {"cpu": "100m", "memory": "128Mi"},
        "512Mi",
        replicas=variant.server_replicas,
    )


def _templates(variant: Variant) -> list[str]:
    """Without the option, programs read AggregatorConfigs in their own namespace. It is named where users know it."""
    return [f"--agconfig-namespace={variant.namespace}"] if variant.group and variant.has_server else []


def _scheme(variant: Variant) -> list[str]:
    return [f"--enable-scheme={variant.scheme}"] if variant.scheme else []


def _deployment(variant: Variant, program: Program) -> Object:
    labels = _selector(program.name)
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(variant, program)}
    spec = {
        # One is Kubernetes' default: an apply leaves alone what somebody set by hand.
        **({"replicas": program.replicas} if program.replicas > 1 else {}),
        # The next one is ready before the last one goes: a coordinator is always answered.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return _body("apps/v1", "Deployment", program.name, variant.namespace, labels=labels, spec=spec)


def _selector(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name}


def _pod_spec(variant: Variant, program: Program) -> Object:
    container = {
        "name": program.args[0],
        "image": image(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["trainmaster"],
        "args": list(program.args),
        **({"env": list(program.env)} if program.env else {}),
        "ports": [{"name": name, "containerPort": port} for name, port in program.ports.items()],
        "livenessProbe": _probe("/healthz", program.health, initialDelaySeconds=15, periodSeconds=20),
        "readinessProbe": _probe("/readyz", program.health, initialDelaySeconds=1, periodSeconds=5),
        "resources": {"requests": dict(program.requests), "limits": {"memory": program.memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    return {
        "serviceAccountName": program.name,
        "priorityClassName": _priority_name(variant),
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _selector(program.name)},
            }
        ],
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{trouble}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": LOST_NODE_SECONDS,
            }
            for trouble in ("not-ready", "unreachable")
        ],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }


def _priority_name(variant: Variant) -> str:
    return variant.name("manager")


def _priority(variant: Variant) -> Object:
    """Not system-cluster-critical: some clusters allow that in kube-system only."""
    why = "Operator, server and webhook of trainmaster: training pods do not preempt them."
    name = _priority_name(variant)
    return _body("scheduling.k8s.io/v1", "PriorityClass", name, value=PRIORITY, description=why)


def _flow_control(variant: Variant) -> Iterator[Object]:
    """A busy API server works on requests of tenants and on ours side by side: without it, ours wait in the same queues
    as those of all service accounts. Among ours namespaces take turns. Renewals of Leases go before all else."""
    name = variant.name("manager")
    limited = {
        "nominalConcurrencyShares": FLOW_SHARES,
        "lendablePercent": 50,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}},
    }
    level = {"type": "Limited", "limited": limited}
    yield _body(FLOW_CONTROL, "PriorityLevelConfiguration", name, spec=level)
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    leases = {"verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]}
    for schema, precedence, level_name, rule in (
        (variant.name("leases"), 400, "leader-election", leases),
        (name, 700, name, everything),
    ):
        subjects = [
            {"kind": "ServiceAccount", "serviceAccount": {"name": variant.name(part), "namespace": variant.namespace}}
            for part in ("operator", *(("server",) if variant.has_server else ()), "webhook")
        ]
        spec = {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level_name},
            "distinguisherMethod": {"type": "ByNamespace"},
            "rules": [{"subjects": subjects, "resourceRules": [rule]}],
        }
        yield _body(FLOW_CONTROL, "FlowSchema", schema, spec=spec)


def _budget(variant: Variant, program: Program) -> Object:
    """One after the other, also of a single replica: a drain must not wait for ever. Nor does it wait for pods that are
    not ready: all of them may be, for example while a definition is missing."""
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": _selector(program.name)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return _body("policy/v1", "PodDisruptionBudget", program.name, variant.namespace, spec=spec)


def _probe(path: str, port: str, **times: int) -> Object:
    return {"httpGet": {"path": path, "port": port}, **times, "timeoutSeconds": 5}


# --- addresses ---------------------------------------------------------------------------------


def _services(variant: Variant) -> Iterator[Object]:
    if variant.has_server:
        server = variant.name("server")
        yield _service(variant, server, server, variant.server_ports, "http")
    yield _webhook_service(variant)
    for part in ("operator", "webhook"):
        yield _service(variant, variant.name(f"{part}-metrics-service"), variant.name(part), {"metrics": 8080})


def _webhook_service(variant: Variant, target: str | int = "webhook") -> Object:
    return _service(variant, variant.webhook.service, variant.name("webhook"), {"webhook": 443}, target)


def _service(variant: Variant, name: str, program: str, ports: Mapping[str, int], target: str | int = "") -> Object:
    """Inside of the cluster alone. All ports lead to the target; without one, to the port of the same name."""
    spec = {
        "type": "ClusterIP",
        "selector": _selector(program),
        "ports": [{"name": what, "port": port, "targetPort": target or what} for what, port in ports.items()],
    }
    return _body("v1", "Service", name, variant.namespace, labels=_selector(program), spec=spec)


def _network_policies(variant: Variant) -> Iterator[Object]:
    """Nothing comes in but what is named here, and the probes of the kubelet, which policies let through. What goes
    out is not limited: no manifest knows the address of the API server."""
    everything = {"podSelector": {}, "policyTypes": ["Ingress"]}
    yield _body("networking.k8s.io/v1", "NetworkPolicy", variant.name("deny"), variant.namespace, spec=everything)
    for program in _programs(variant):
        # di-server is for pods of all namespaces and of the host network; the API server calls from an address that
        # no selector names.
        open_to_all = [{"ports": [{"port": name}]} for name in program.ports if name in ("http", "webhook")]
        for_monitoring = [
            {"ports": [{"port": name}], "from": [{"namespaceSelector": {"matchLabels": METRICS_NAMESPACES}}]}
            for name in program.ports
            if name == "metrics"
        ]
        spec = {
            "podSelector": {"matchLabels": _selector(program.name)},
            "policyTypes": ["Ingress"],
            "ingress": open_to_all + for_monitoring,
        }
        yield _body("networking.k8s.io/v1", "NetworkPolicy", program.name, variant.namespace, spec=spec)


# --- webhooks ----------------------------------------------------------------------------------


def _webhooks(variant: Variant) -> Iterator[Object]:
    phases: tuple[tuple[Phase, str, str], ...] = (
        ("mutate", "MutatingWebhookConfiguration", variant.webhook.mutating),
        ("validate", "ValidatingWebhookConfiguration", variant.webhook.validating),
    )
    for phase, kind, name in phases:
        webhooks = [_webhook(variant, phase, each) for each in variant.kinds]
        yield _body(policy.API, kind, name, webhooks=webhooks)


def _webhook(variant: Variant, phase: Phase, kind: ResourceKinds) -> Object:
    resource = kind.resource
    # Names are domains. Two kinds that are spelt alike have names with their group, which are domains already.
    domain = kind.name if "." in kind.name else f"{kind.name}.kb.io"
    return {
        "name": f"{phase[0]}{domain}",
        "clientConfig": {
            "service": {
                "name": variant.webhook.service,
                "namespace": variant.namespace,
                "path": path_of(phase, resource),
            }
        },
        "rules": [
            {
                "apiGroups": [resource.group],
                "apiVersions": [each.version for each in kind.resources],
                "operations": ["CREATE", "UPDATE"],
                "resources": [resource.plural],
                "scope": "Namespaced",
            }
        ],
        "matchPolicy": "Exact",  # another version is another spec
        "matchConditions": [{"name": "is-not-going", "expression": "!has(object.metadata.deletionTimestamp)"}],
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
    }


def main() -> None:
    for file, text in manifests().items():
        file.write_text(text)


if __name__ == "__main__":
    main()
