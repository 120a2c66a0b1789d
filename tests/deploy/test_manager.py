"""The manifests of installations, without a cluster; test_install.py runs two of them, test_policy.py applies all."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from deploy import manager
from deploy.manager import ALL, MX, VARIANTS, Variant
from testbed.operator import RBAC
from trainmaster.cli.main import cli
from trainmaster.kinds.crd import all_crds
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.runtime.elector import lease_name
from trainmaster.settings import OPERATOR

Object = dict[str, Any]

DI, NERVEX = VARIANTS
LAST_APPLIED_LIMIT = 262_144
"""Bytes of an annotation: what `kubectl apply` keeps of an object must fit."""

each_variant = pytest.mark.parametrize("variant", [ALL, *VARIANTS, MX], ids=lambda variant: variant.prefix)
each_of_one_ancestor = pytest.mark.parametrize("variant", [*VARIANTS, MX], ids=lambda variant: variant.prefix)


def of_kind(kind: str, variant: Variant = DI) -> dict[str, Object]:
    """The objects of a kind, by name."""
    return {body["metadata"]["name"]: body for body in manager.bodies(variant) if body["kind"] == kind}


def containers(variant: Variant) -> dict[str, Object]:
    """The one container of each Deployment."""
    found = {}
    for name, deployment in of_kind("Deployment", variant).items():
        [found[name]] = deployment["spec"]["template"]["spec"]["containers"]
    return found


def texts(value: Any) -> Iterator[str]:
    """All strings in an object."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)


@pytest.mark.parametrize("file", manager.manifests(), ids=lambda file: file.name)
def test_the_file_is_what_is_generated(file: Path) -> None:
    assert file.read_text() == manager.manifests()[file], f"{file} is stale: run make generate"


@each_variant
def test_every_object_fits_kubectl_apply(variant: Variant) -> None:
    for body in yaml.safe_load_all(variant.file.read_text()):
        assert len(json.dumps(body)) < LAST_APPLIED_LIMIT, body["metadata"]["name"]


@each_variant
def test_everything_but_the_definitions_has_the_label_by_which_it_is_removed(variant: Variant) -> None:
    unlabelled = {
        body["kind"]
        for body in manager.bodies(variant)
        if body["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") != "trainmaster"
    }

    assert unlabelled == {"CustomResourceDefinition"}


def test_names_are_those_of_the_ancestor() -> None:
    assert [*of_kind("Namespace")] == ["di-system"]
    assert [*of_kind("Deployment")] == ["di-operator", "di-server", "di-webhook"]
    assert [*of_kind("ServiceAccount")] == ["di-operator", "di-server", "di-webhook"]
    assert {name: ports(body) for name, body in of_kind("Service").items()} == {
        "di-server": [(8080, 8080), (8081, 8080)],
        "di-webhook-service": [(443, 9443)],
        "di-operator-metrics-service": [(8080, 8080)],
        "di-webhook-metrics-service": [(8080, 8080)],
    }
    assert [*of_kind("CustomResourceDefinition")] == [
        "dijobs.diengine.opendilab.org",
        "aggregatorconfigs.diengine.opendilab.org",
    ]
    assert [*of_kind("MutatingWebhookConfiguration")] == ["di-mutating-webhook-configuration"]
    assert [*of_kind("ValidatingWebhookConfiguration")] == ["di-validating-webhook-configuration"]


def ports(service: Object) -> list[tuple[int, int]]:
    """Of a Service: the port, and the number of the container's port behind it."""
    wanted = service["spec"]["selector"]
    [pod] = [
        deployment["spec"]["template"]
        for deployment in of_kind("Deployment").values()
        if deployment["spec"]["template"]["metadata"]["labels"] == wanted
    ]
    numbers = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    return [(port["port"], numbers[port["targetPort"]]) for port in service["spec"]["ports"]]


@each_of_one_ancestor
def test_an_installation_names_nothing_of_another_one(variant: Variant) -> None:
    others = {each.prefix for each in (*VARIANTS, MX)} - {variant.prefix}
    groups = {crd["spec"]["group"] for crd in all_crds()} - {variant.group}
    for body in manager.bodies(variant):
        for text in texts(body):
            assert not text.startswith(tuple(f"{prefix}-" for prefix in others)), text
            assert text not in groups
            assert "trainmaster-" not in text


@each_variant
def test_nothing_can_be_reached_from_outside(variant: Variant) -> None:
    assert {body["spec"]["type"] for body in of_kind("Service", variant).values()} == {"ClusterIP"}
    for deployment in of_kind("Deployment", variant).values():
        assert "hostNetwork" not in deployment["spec"]["template"]["spec"]


@each_variant
def test_a_program_has_probes_limits_and_the_options_that_it_knows(variant: Variant) -> None:
    for name, container in containers(variant).items():
        names = {port["name"] for port in container["ports"]}
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= names
        assert {*container["resources"]["requests"]} == {"cpu", "memory"}
        command, *options = container["args"]
        assert name == f"{variant.prefix}-{command}"
        given = [option.partition("=")[0] for option in options]
        assert len(given) == len(set(given))
        assert set(given) <= known_options(command)


def known_options(command: str) -> set[str]:
    assert isinstance(cli, click.Group)
    return {option for param in cli.commands[command].params for option in param.opts}


@each_variant
def test_every_port_that_a_program_opens_is_declared(variant: Variant) -> None:
    for container in containers(variant).values():
        opened = {int(arg.rpartition(":")[2]) for arg in container["args"] if "bind-address=:" in arg}
        assert opened == {port["containerPort"] for port in container["ports"]}


def test_the_webhook_may_touch_its_own_objects_alone_and_create_none() -> None:
    configurations = of_kind("ClusterRole")["di-webhook"]["rules"]
    [secret] = of_kind("Role")["di-webhook"]["rules"]

    assert [rule["resourceNames"] for rule in configurations] == [
        ["di-mutating-webhook-configuration"],
        ["di-validating-webhook-configuration"],
    ]
    assert (secret["resourceNames"], secret["verbs"]) == (["di-webhook-server-cert"], ["get", "update"])


@each_variant
def test_the_secret_of_the_webhook_is_there_and_empty(variant: Variant) -> None:
    """So the webhook needs no right to create one, and an apply leaves its data alone."""
    [secret] = of_kind("Secret", variant).values()
    [argument] = [
        arg for arg in containers(variant)[variant.name("webhook")]["args"] if arg.startswith("--secret-name")
    ]

    assert argument == f"--secret-name={secret['metadata']['name']}"
    assert secret["type"] == "Opaque"
    assert "data" not in secret


@each_variant
def test_every_binding_joins_a_role_and_an_account_that_are_there(variant: Variant) -> None:
    bodies = {(body["kind"], body["metadata"]["name"]) for body in manager.bodies(variant)}
    for body in manager.bodies(variant):
        if body["kind"].endswith("RoleBinding"):
            [subject] = body["subjects"]
            assert (body["roleRef"]["kind"], body["roleRef"]["name"]) in bodies
            assert ("ServiceAccount", subject["name"]) in bodies
            assert subject["namespace"] == variant.namespace


def test_the_installation_for_all_kinds_has_every_definition_and_drives_every_kind() -> None:
    definitions = of_kind("CustomResourceDefinition", ALL)
    arguments = [arg for container in containers(ALL).values() for arg in container["args"]]
    [reviewed] = of_kind("ValidatingWebhookConfiguration", ALL).values()

    assert [*definitions.values()] == [*all_crds()]
    assert not any(arg.startswith("--enable-scheme") for arg in arguments)
    assert len(reviewed["webhooks"]) == len(all_resource_kinds(OPERATOR.jobs))
    assert {*of_kind("Deployment", ALL)} == {"trainmaster-operator", "trainmaster-server", "trainmaster-webhook"}
    assert {body["spec"]["replicas"] for body in of_kind("Deployment", ALL).values()} == {2}


# --- redundancy ---


@each_variant
def test_operator_and_webhook_survive_the_loss_of_a_node(variant: Variant) -> None:
    deployments = of_kind("Deployment", variant)
    for program in ("operator", "webhook"):
        spec = deployments[variant.name(program)]["spec"]
        [spread] = spec["template"]["spec"]["topologySpreadConstraints"]
        assert spec["replicas"] == 2
        assert spread["topologyKey"] == "kubernetes.io/hostname"
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway"  # a cluster of one node has both there
        assert spread["labelSelector"] == spec["selector"]


@each_variant
def test_pods_of_a_lost_node_are_replaced_within_half_a_minute(variant: Variant) -> None:
    for deployment in of_kind("Deployment", variant).values():
        tolerated = {each["key"]: each for each in deployment["spec"]["template"]["spec"]["tolerations"]}
        assert tolerated.keys() == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
        for each in tolerated.values():
            assert each["effect"] == "NoExecute"
            assert 15 <= each["tolerationSeconds"] <= 30


@each_variant
def test_a_drain_evicts_one_replica_after_the_other_and_never_waits_for_ever(variant: Variant) -> None:
    budgets = of_kind("PodDisruptionBudget", variant)
    deployments = of_kind("Deployment", variant)

    assert budgets.keys() == deployments.keys()
    for name, budget in budgets.items():
        assert budget["spec"] == {
            "maxUnavailable": 1,
            "selector": deployments[name]["spec"]["selector"],
            "unhealthyPodEvictionPolicy": "AlwaysAllow",  # all pods may be unready, for example without a definition
        }


@each_variant
def test_no_training_pod_preempts_our_programs(variant: Variant) -> None:
    [priority] = of_kind("PriorityClass", variant).values()
    pods = [deployment["spec"]["template"]["spec"] for deployment in of_kind("Deployment", variant).values()]

    assert {pod["priorityClassName"] for pod in pods} == {priority["metadata"]["name"]}
    assert priority["value"] == 1_000_000_000  # more is Kubernetes' own


@each_variant
def test_requests_of_our_programs_have_a_priority_level_of_their_own(variant: Variant) -> None:
    accounts = {
        (a["metadata"]["namespace"], a["metadata"]["name"]) for a in of_kind("ServiceAccount", variant).values()
    }
    [level] = of_kind("PriorityLevelConfiguration", variant)
    schemas = of_kind("FlowSchema", variant)

    assert {s["spec"]["priorityLevelConfiguration"]["name"] for s in schemas.values()} == {level, "leader-election"}
    for schema in schemas.values():
        [rule] = schema["spec"]["rules"]
        subjects = [subject["serviceAccount"] for subject in rule["subjects"]]
        assert {(subject["namespace"], subject["name"]) for subject in subjects} == accounts


# --- who may connect ---


@each_variant
def test_every_port_is_open_to_those_who_need_it_and_closed_to_others(variant: Variant) -> None:
    policies = of_kind("NetworkPolicy", variant)
    monitoring = [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]
    sources = {"http": None, "webhook": None, "metrics": monitoring}

    assert policies.pop(variant.name("deny"))["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    assert policies.keys() == of_kind("Deployment", variant).keys()
    for name, container in containers(variant).items():
        spec = policies[name]["spec"]
        named = {port["name"] for port in container["ports"]} - {"health"}  # the kubelet's, which policies let through
        opened = {port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]}
        assert spec["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": name}
        assert opened == {port: sources[port] for port in named}


@pytest.mark.parametrize("file", manager.manifests(), ids=lambda file: file.name)
def test_every_namespace_enforces_the_restricted_standard(file: Path) -> None:
    namespaces = [body for body in yaml.safe_load_all(file.read_text()) if body["kind"] == "Namespace"]

    assert namespaces
    for body in namespaces:
        assert body["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


# --- Leases ---


def test_the_operator_may_change_the_leases_of_its_kinds_and_no_other() -> None:
    role = next(
        body
        for body in yaml.safe_load_all(RBAC.read_text())
        if (body["kind"], body["metadata"]["name"]) == ("Role", "trainmaster-operator-election")
    )
    named = {frozenset(rule["verbs"]): set(rule.get("resourceNames", ())) for rule in role["rules"]}
    leases = {lease_name(each.resource) for each in all_resource_kinds(OPERATOR.jobs)}

    assert named == {frozenset({"create"}): set(), frozenset({"get", "update"}): leases}
    assert role["metadata"]["namespace"] == OPERATOR.lease_namespace


def test_an_installation_may_change_the_lease_of_its_own_kind_alone() -> None:
    role = of_kind("Role")["di-operator-election"]

    assert role["metadata"]["namespace"] == OPERATOR.lease_namespace
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, ["dijobs.diengine.opendilab.org"]]


@each_variant
def test_no_role_of_kubernetes_gets_the_right_to_write_templates_for_all_namespaces(variant: Variant) -> None:
    """Whoever has a namespace is its admin, also of one called as an installation expects it."""
    aggregated = [
        rule
        for body in of_kind("ClusterRole", variant).values()
        if any("aggregate-to-" in label for label in body["metadata"]["labels"])
        for rule in body["rules"]
    ]

    assert aggregated
    assert not [rule for rule in aggregated if "aggregatorconfigs" in rule["resources"] and "create" in rule["verbs"]]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.prefix)
def test_the_managers_of_the_ancestors_keep_the_namespace_of_their_templates(variant: Variant) -> None:
    for program in ("operator", "server"):
        assert f"--agconfig-namespace={variant.namespace}" in containers(variant)[variant.name(program)]["args"]
