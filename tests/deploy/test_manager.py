"""deploy/di-manager.yaml and deploy/nervex-manager.yaml, without a cluster; test_install.py brings them to life."""

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml

from deploy import manager
from deploy.manager import VARIANTS, Variant
from testbed.operator import RBAC
from trainmaster.cli.main import cli
from trainmaster.kinds.crd import all_crds

Object = dict[str, Any]

DI, NERVEX = VARIANTS
LAST_APPLIED_LIMIT = 262_144
"""Bytes of an annotation: what `kubectl apply` keeps of an object must fit."""

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.prefix)


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


@each_variant
def test_the_file_is_what_is_generated(variant: Variant) -> None:
    assert variant.file.read_text() == manager.to_yaml(variant), f"{variant.file} is stale: run make generate"


@each_variant
def test_every_object_fits_kubectl_apply(variant: Variant) -> None:
    for body in yaml.safe_load_all(variant.file.read_text()):
        assert len(json.dumps(body)) < LAST_APPLIED_LIMIT, body["metadata"]["name"]


def test_names_are_those_of_the_ancestor() -> None:
    assert [*of_kind("Namespace")] == ["di-system"]
    assert [*of_kind("Deployment")] == ["di-operator", "di-server", "di-webhook"]
    assert [*of_kind("ServiceAccount")] == ["di-operator", "di-server", "di-webhook"]
    assert {name: ports(body) for name, body in of_kind("Service").items()} == {
        "di-server": [(8080, 8080)],
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


@each_variant
def test_an_installation_names_nothing_of_another_one(variant: Variant) -> None:
    others = {each.prefix for each in VARIANTS} - {variant.prefix}
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


def rules(bodies: list[Object]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for body in bodies
        if body["kind"] in ("Role", "ClusterRole")
        for rule in body["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_rights_are_those_that_the_tests_of_rbac_yaml_prove_and_none_of_another_group() -> None:
    webhook = yaml.safe_load_all((RBAC.parent / "webhook.yaml").read_text())
    proven = rules([*yaml.safe_load_all(RBAC.read_text()), *webhook])

    foreign = {crd["spec"]["group"] for crd in all_crds()} - {DI.group}
    needless = manager.NEEDED_BY.keys()
    assert rules(manager.bodies(DI)) == {rule for rule in proven if rule[0] not in foreign and rule[1] not in needless}


def test_the_webhook_may_touch_its_own_objects_alone() -> None:
    [configurations] = of_kind("ClusterRole")["di-webhook"]["rules"]
    secret, _ = of_kind("Role")["di-webhook"]["rules"]

    assert configurations["resourceNames"] == [
        "di-mutating-webhook-configuration",
        "di-validating-webhook-configuration",
    ]
    assert secret["resourceNames"] == ["di-webhook-server-cert"]


@each_variant
def test_every_binding_joins_a_role_and_an_account_that_are_there(variant: Variant) -> None:
    bodies = {(body["kind"], body["metadata"]["name"]) for body in manager.bodies(variant)}
    for body in manager.bodies(variant):
        if body["kind"].endswith("RoleBinding"):
            [subject] = body["subjects"]
            assert (body["roleRef"]["kind"], body["roleRef"]["name"]) in bodies
            assert ("ServiceAccount", subject["name"]) in bodies
            assert subject["namespace"] == variant.namespace


def test_a_source_that_is_not_there_is_told() -> None:
    with pytest.raises(LookupError, match=r"neither of rbac\.yaml, webhook\.yaml has the Role none"):
        manager._source("Role", "none")
