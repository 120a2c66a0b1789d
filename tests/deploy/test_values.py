"""Every value of the chart: what it changes, and which error a wrong one gets."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deploy import monitoring
from deploy.helm import CHART
from deploy.manager import image
from testbed.helm import Helm, HelmFailed
from trainmaster.cli.accelerator import accelerators_in

Object = dict[str, Any]
Objects = list[Object]

NAMESPACE = "trainmaster-system"
RELEASE = ("template", "trainmaster", CHART, f"--namespace={NAMESPACE}", "--skip-tests")
DIGEST = f"sha256:{'0' * 64}"
PROGRAMS = ("operator", "server", "webhook")
VERSION = image().partition(":")[2]


@pytest.fixture(scope="module")
def helm(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """``binaries`` marks what needs more than Python."""
    return Helm(tmp_path_factory.mktemp("helm"))


# --- what is looked at ---


def of(found: Objects, kind: str) -> Objects:
    return [body for body in found if body["kind"] == kind]


def names(found: Objects, kind: str) -> set[str]:
    return {body["metadata"]["name"] for body in of(found, kind)}


def deployment(found: Objects, program: str) -> Object:
    [body] = [each for each in of(found, "Deployment") if each["metadata"]["name"] == f"trainmaster-{program}"]
    spec: Object = body["spec"]
    return spec


def pod(found: Objects, program: str) -> Object:
    spec: Object = deployment(found, program)["template"]["spec"]
    return spec


def container(found: Objects, program: str) -> Object:
    [body] = pod(found, program)["containers"]
    assert isinstance(body, dict)
    return body


def pods(field: str) -> Callable[[Objects], Any]:
    """The field of all pods, which is the same in all."""

    def look(found: Objects) -> Any:
        first, *others = [pod(found, program)[field] for program in PROGRAMS]
        assert others == [first, first]
        return first

    return look


def containers(field: str) -> Callable[[Objects], Any]:
    def look(found: Objects) -> Any:
        first, *others = [container(found, program)[field] for program in PROGRAMS]
        assert others == [first, first]
        return first

    return look


def has(kind: str) -> Callable[[Objects], bool]:
    return lambda found: bool(of(found, kind))


def argument(option: str) -> Callable[[Objects], list[str]]:
    return lambda found: [arg for arg in container(found, "operator")["args"] if arg.startswith(option)]


def metrics_from(found: Objects) -> Object:
    [policy] = [body for body in of(found, "NetworkPolicy") if body["metadata"]["name"] == "trainmaster-operator"]
    labels: Object = policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]
    return labels


def issuer(found: Objects) -> Object:
    [certificate] = of(found, "Certificate")
    reference: Object = certificate["spec"]["issuerRef"]
    return reference


def accelerators(found: Objects) -> Object:
    [config] = of(found, "ConfigMap")
    accelerated: Object = yaml.safe_load(config["data"]["controller_config_file.yaml"])["accelerators"]
    return accelerated


def monitor(found: Objects) -> Object:
    [body] = of(found, "ServiceMonitor")
    spec: Object = body["spec"]
    return spec


def rules(found: Objects) -> Object:
    [body] = of(found, "PrometheusRule")
    spec: Object = body["spec"]
    return spec


def dashboard(found: Objects) -> Any:
    [config] = of(found, "ConfigMap")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    return json.loads(config["data"]["trainmaster.json"])


def labels_of_monitoring(found: Objects) -> set[str]:
    return {body["metadata"]["labels"]["release"] for body in found if body["kind"] in ("ServiceMonitor", "ConfigMap")}


def kept(found: Objects) -> set[str]:
    return {
        body["metadata"]["annotations"]["helm.sh/resource-policy"] for body in of(found, "CustomResourceDefinition")
    }


# --- the table ---


class Value(NamedTuple):
    """``given`` and ``wrong`` are YAML; in ``given`` other values may stand that this one needs."""

    given: str
    look: Callable[[Objects], Any]
    """At the objects that are rendered."""
    wanted: Any
    wrong: str
    error: str


NO_TEXT = "got number, want string"
NO_FLAG = "got string, want boolean"
LIMITS = {"limits": {"memory": "1Gi"}}
LIBRARY = {"volumes": [{"name": "lib", "hostPath": "/opt/lib", "mountPath": "/usr/lib/gpu"}]}
TOLERATION = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
MONITOR = {key: each for key, each in monitoring.service_monitor()["spec"].items() if key != "namespaceSelector"}


def of_program(program: str) -> Iterator[tuple[str, Value]]:
    yield (
        f"{program}.replicas",
        Value(
            f"{program}: {{replicas: 7}}",
            lambda found: deployment(found, program)["replicas"],
            7,
            f"{program}: {{replicas: two}}",
            f"{program}/replicas.*got string, want null or integer",
        ),
    )
    yield (
        f"{program}.resources",
        Value(
            f"{program}: {{resources: {{requests: null, limits: {{memory: 1Gi}}}}}}",
            lambda found: container(found, program)["resources"],
            LIMITS,
            f"{program}: {{resources: {{limits: {{memory: much}}}}}}",
            f"{program}/resources/limits/memory.*does not match pattern",
        ),
    )
    yield (
        f"{program}.extraArgs",
        Value(
            f"{program}: {{extraArgs: [--log-level=debug]}}",
            lambda found: container(found, program)["args"][-1],
            "--log-level=debug",
            f"{program}: {{extraArgs: [debug]}}",
            f"{program}/extraArgs/0.*does not match pattern",
        ),
    )
    if program != "operator":
        yield (
            f"{program}.enabled",
            Value(
                f"{program}: {{enabled: false}}",
                lambda found: f"trainmaster-{program}" in names(found, "Deployment") | names(found, "Service"),
                False,
                f"{program}: {{enabled: 'no'}}",
                f"{program}/enabled.*{NO_FLAG}",
            ),
        )


VALUES: dict[str, Value] = {
    "image.repository": Value(
        "image: {repository: registry.example/ml/trainmaster}",
        containers("image"),
        f"registry.example/ml/trainmaster:{VERSION}",
        "image: {repository: ''}",
        "image/repository.*minLength",
    ),
    "image.tag": Value(
        "image: {tag: next}", containers("image"), "trainmaster:next", "image: {tag: 1.5}", f"image/tag.*{NO_TEXT}"
    ),
    "image.digest": Value(
        f"image: {{digest: '{DIGEST}'}}",
        containers("image"),
        f"trainmaster@{DIGEST}",
        "image: {digest: latest}",
        "image/digest.*does not match pattern",
    ),
    "image.pullPolicy": Value(
        "image: {pullPolicy: Always}",
        containers("imagePullPolicy"),
        "Always",
        "image: {pullPolicy: Sometimes}",
        "image/pullPolicy.*must be one of 'IfNotPresent', 'Always', 'Never'",
    ),
    "image.pullSecrets": Value(
        "image: {pullSecrets: [{name: registry}]}",
        pods("imagePullSecrets"),
        [{"name": "registry"}],
        "image: {pullSecrets: [registry]}",
        "image/pullSecrets/0.*got string, want object",
    ),
    "kinds": Value(
        "kinds: [dijob, mxjob.mlkube.io]",
        argument("--enable-scheme"),
        ["--enable-scheme=dijob", "--enable-scheme=mxjob.mlkube.io"],
        "kinds: [tfjob]",
        "kinds/0.*must be one of 'dijob', 'nervexjob'",
    ),
    "namespace": Value(
        "namespace: team",
        argument("--namespace"),
        ["--namespace=team"],
        "namespace: Team",
        "namespace.*does not match pattern",
    ),
    "delegatedNamespaces": Value(
        "delegatedNamespaces: [team]",
        argument("--delegated-namespace"),
        ["--delegated-namespace=team"],
        "delegatedNamespaces: [Team]",
        "delegatedNamespaces/0.*does not match pattern",
    ),
    **dict(each for program in PROGRAMS for each in of_program(program)),
    "certificates.source": Value(
        "certificates: {source: cert-manager}",
        has("Certificate"),
        True,
        "certificates: {source: letsencrypt}",
        "certificates/source.*must be one of 'own', 'cert-manager'",
    ),
    "certificates.issuer": Value(
        "certificates: {source: cert-manager, issuer: {kind: ClusterIssuer, name: internal}}",
        issuer,
        {"kind": "ClusterIssuer", "name": "internal"},
        "certificates: {source: cert-manager, issuer: {kind: ClusterIssuer}}",
        "certificates/issuer.*missing property 'name'",
    ),
    "crds.install": Value(
        "crds: {install: false}",
        has("CustomResourceDefinition"),
        False,
        "crds: {install: 'no'}",
        f"crds/install.*{NO_FLAG}",
    ),
    "gangScheduler": Value(
        "gangScheduler: volcano",
        argument("--gang-scheduler-name"),
        ["--gang-scheduler-name=volcano"],
        "gangScheduler: true",
        "gangScheduler.*got boolean, want string",
    ),
    "accelerators": Value(
        f"accelerators: {{nvidia.com/gpu: {json.dumps(LIBRARY)}}}",
        accelerators,
        {"nvidia.com/gpu": LIBRARY},
        "accelerators: {nvidia.com/gpu: {volumes: [{name: lib, hostPath: /opt/lib}]}}",
        "accelerators/nvidia.com~1gpu/volumes/0.*missing property 'mountPath'",
    ),
    "metrics.enabled": Value(
        "metrics: {enabled: false}",
        lambda found: [name for name in names(found, "Service") if "metrics" in name],
        [],
        "metrics: {enabled: false, serviceMonitor: true}",
        "metrics/serviceMonitor.*value must be false",
    ),
    "metrics.namespaceLabels": Value(
        "metrics: {namespaceLabels: {metrics: null, team: sre}}",
        metrics_from,
        {"team": "sre"},
        "metrics: {namespaceLabels: {team: 1}}",
        f"metrics/namespaceLabels/team.*{NO_TEXT}",
    ),
    "metrics.serviceMonitor": Value(
        "metrics: {serviceMonitor: true}",
        monitor,
        MONITOR,
        "metrics: {serviceMonitor: 'yes'}",
        f"metrics/serviceMonitor.*{NO_FLAG}",
    ),
    "metrics.prometheusRule": Value(
        "metrics: {prometheusRule: true}",
        rules,
        monitoring.rules(),
        "metrics: {prometheusRule: 'yes'}",
        f"metrics/prometheusRule.*{NO_FLAG}",
    ),
    "metrics.runbookUrl": Value(
        "metrics: {prometheusRule: true, runbookUrl: 'https://git.example/runbook/'}",
        rules,
        monitoring.rules("https://git.example/runbook"),
        "metrics: {runbookUrl: docs/runbook}",
        "metrics/runbookUrl.*does not match pattern",
    ),
    "metrics.dashboard": Value(
        "metrics: {dashboard: true}",
        dashboard,
        monitoring.dashboard(),
        "metrics: {dashboard: 'yes'}",
        f"metrics/dashboard.*{NO_FLAG}",
    ),
    "metrics.labels": Value(
        "metrics: {serviceMonitor: true, dashboard: true, labels: {release: monitoring}}",
        labels_of_monitoring,
        {"monitoring"},
        "metrics: {labels: [release]}",
        "metrics/labels.*got array, want object",
    ),
    "networkPolicies.enabled": Value(
        "networkPolicies: {enabled: false}",
        has("NetworkPolicy"),
        False,
        "networkPolicies: false",
        "networkPolicies.*got boolean, want object",
    ),
    "admissionPolicies": Value(
        "admissionPolicies: false",
        has("ValidatingAdmissionPolicy"),
        False,
        "admissionPolicies: {enabled: false}",
        "admissionPolicies.*got object, want boolean",
    ),
    "nodeSelector": Value(
        "nodeSelector: {pool: system}",
        pods("nodeSelector"),
        {"kubernetes.io/os": "linux", "pool": "system"},
        "nodeSelector: {pool: 1}",
        f"nodeSelector/pool.*{NO_TEXT}",
    ),
    "tolerations": Value(
        f"tolerations: [{json.dumps(TOLERATION)}]",
        pods("tolerations"),
        [TOLERATION],
        "tolerations: [{key: dedicated, effect: Never}]",
        "tolerations/0/effect.*must be one of 'NoSchedule'",
    ),
}


def rendered(helm: Helm, values: str) -> Objects:
    return [body for body in yaml.load_all(helm(*RELEASE, values=values), yaml.CSafeLoader) if body]


def paths() -> Iterator[str]:
    """Of all values, as values.yaml has them: what the schema knows by name."""
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    for name, value in yaml.safe_load((CHART / "values.yaml").read_text()).items():
        yield from (f"{name}.{key}" for key in value) if "properties" in schema[name] else [name]


def test_the_table_has_every_value() -> None:
    assert set(paths()) == VALUES.keys()


@pytest.mark.parametrize("path", VALUES)
def test_a_value_changes_what_is_installed(helm: Helm, path: str) -> None:
    value = VALUES[path]

    assert value.look(rendered(helm, value.given)) == value.wanted


@pytest.mark.parametrize("path", VALUES)
def test_a_wrong_value_is_refused_with_a_sentence(helm: Helm, path: str) -> None:
    value = VALUES[path]

    with pytest.raises(HelmFailed, match=re.compile(value.error, re.DOTALL)):
        rendered(helm, value.wrong)


def test_a_value_that_does_not_exist_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match="additional properties 'kind' not allowed"):
        rendered(helm, "kind: [dijob]")


@pytest.mark.parametrize("values", ["", "crds: {keep: false}", "crds: {keep: true}"])
def test_definitions_are_kept_whatever_older_values_say(helm: Helm, values: str) -> None:
    assert kept(rendered(helm, values)) == {"keep"}


def test_the_operator_reads_the_accelerators(helm: Helm, tmp_path: Path) -> None:
    found = rendered(helm, VALUES["accelerators"].given)
    [config] = of(found, "ConfigMap")
    [(name, content)] = config["data"].items()
    (tmp_path / name).write_text(content)
    [mount] = container(found, "operator")["volumeMounts"]

    assert accelerators_in(str(tmp_path / name)).keys() == {"nvidia.com/gpu"}
    assert argument("--controller-config-file")(found) == [f"--controller-config-file={mount['mountPath']}/{name}"]
    assert pod(found, "operator")["volumes"] == [
        {"name": mount["name"], "configMap": {"name": config["metadata"]["name"]}}
    ]


def test_nothing_of_the_prometheus_operator_is_installed_by_default(helm: Helm) -> None:
    assert not {"ServiceMonitor", "PrometheusRule"} & {body["kind"] for body in rendered(helm, "")}
