"""The Helm chart without a cluster: what it renders. test_values.py has each value, test_release.py installs it."""

import itertools
import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import helm, manager, rights
from deploy.helm import CHART
from deploy.manager import ALL
from testbed.helm import Helm
from trainmaster.kinds.registry import DEFINITIONS

Object = dict[str, Any]
Key = tuple[str, str, str]

RELEASE = ("template", "trainmaster", CHART, "--namespace=trainmaster-system")
GROUPS = {helm.kind_name(each): each for each in ALL.kinds}


@pytest.fixture(scope="module")
def helm_command(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """``binaries`` marks what needs more than Python."""
    return Helm(tmp_path_factory.mktemp("helm"))


def key(body: Object) -> Key:
    return body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]


def objects(text: str) -> dict[Key, Object]:
    return {key(body): body for body in yaml.load_all(text, yaml.CSafeLoader) if body}


def rendered(command: Helm, values: str = "", *more: str) -> dict[Key, Object]:
    return objects(command(*RELEASE, "--skip-tests", *more, values=values))


def arguments(found: dict[Key, Object], program: str) -> list[str]:
    [deployment] = [body for (kind, _, name), body in found.items() if (kind, name) == ("Deployment", program)]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    args: list[str] = container["args"]
    return args


@pytest.mark.parametrize("file", helm.files(), ids=lambda file: file.name)
def test_the_file_is_what_is_generated(file: Path) -> None:
    assert file.read_text() == helm.files()[file], f"{file} is stale: run make generate"


def test_every_value_has_a_comment() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"( {2})?\w+:", line) and "requests" not in line:
            assert lines[number - 1].lstrip().startswith("#"), f"values.yaml:{number + 1}: {line.strip()}"


def test_the_schema_knows_every_value_and_every_kind() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert schema["properties"].keys() - {"global"} == values.keys()
    assert set(schema["properties"]["kinds"]["items"]["enum"]) == GROUPS.keys()
    for name, value in values.items():
        if "properties" in schema["properties"][name]:
            known = {key for key, each in schema["properties"][name]["properties"].items() if not is_ignored(each)}
            assert known == value.keys(), name


def is_ignored(value: Object) -> bool:
    """Only older values have it: it is accepted, and its description says that it does nothing."""
    return str(value.get("description", "")).startswith("Without effect")


# --- with Helm ---


def test_helm_finds_no_fault(helm_command: Helm) -> None:
    assert "0 chart(s) failed" in helm_command("lint", "--strict", CHART)


def test_the_chart_renders_what_kustomize_renders(helm_command: Helm, binaries: Path) -> None:
    """Object by object. Helm itself creates the namespace."""
    done = subprocess.run(
        [binaries / "kubectl", "kustomize", CHART.parent], capture_output=True, text=True, timeout=120, check=True
    )
    wanted = objects(done.stdout)
    del wanted["Namespace", "", "trainmaster-system"]
    found = rendered(helm_command)

    assert found.keys() == wanted.keys()
    for each, body in wanted.items():
        if body["kind"] == "CustomResourceDefinition":  # kubectl knows no such annotation
            assert found[each]["metadata"].pop("annotations") == helm.KEEP
        assert found[each] == body, each


@pytest.mark.parametrize("kind", GROUPS)
def test_an_operator_of_one_kind_has_the_rights_of_that_kind(helm_command: Helm, kind: str) -> None:
    found = rendered(helm_command, f"kinds: [{kind}]")
    role = found["ClusterRole", "", "trainmaster-operator"]
    one = GROUPS[kind]

    assert role["rules"] == rights.operator_rules([one])
    assert f"--enable-scheme={kind}" in arguments(found, "trainmaster-operator")
    [webhook] = found["ValidatingWebhookConfiguration", "", "trainmaster"]["webhooks"]
    assert webhook["rules"][0]["apiGroups"] == [one.resource.group]
    assert (("Deployment", "trainmaster-system", "trainmaster-server") in found) == (kind in ("dijob", "nervexjob"))
    assert len([each for each in found if each[0] == "CustomResourceDefinition"]) == len(DEFINITIONS)


def test_several_kinds_add_up(helm_command: Helm) -> None:
    found = rendered(helm_command, "kinds: [dijob, mxjob.mxnet.mlkube.io]")
    wanted = rights.operator_rules([GROUPS["dijob"], GROUPS["mxjob.mxnet.mlkube.io"]])

    assert single_rights(found["ClusterRole", "", "trainmaster-operator"]["rules"]) == single_rights(wanted)


def single_rights(rules: Iterable[Object]) -> set[tuple[str, ...]]:
    """Group, resource, verb and name, one by one: rules that grant the same may be written in several ways."""
    fields = ("apiGroups", "resources", "verbs")
    return {
        right
        for rule in rules
        for right in itertools.product(*(rule[field] for field in fields), rule.get("resourceNames", [""]))
    }


def test_one_namespace_needs_no_object_of_the_cluster(helm_command: Helm) -> None:
    found = rendered(helm_command, "namespace: team", "--namespace=team")

    assert {namespace for _, namespace, _ in found} == {"team"}
    assert "--namespace=team" in arguments(found, "trainmaster-operator")
    assert ("NetworkPolicy", "team", "trainmaster-deny") not in found  # it would isolate the pods of jobs
    [role] = [body for (kind, _, name), body in found.items() if (kind, name) == ("Role", "trainmaster-operator")]
    assert not {"nodes", "customresourcedefinitions"} & {each for rule in role["rules"] for each in rule["resources"]}
    pods = found["Deployment", "team", "trainmaster-operator"]["spec"]["template"]["spec"]
    assert "priorityClassName" not in pods


def test_with_cert_manager_the_webhook_has_no_rights(helm_command: Helm) -> None:
    found = rendered(helm_command, "certificates: {source: cert-manager}")
    certificate = found["Certificate", "trainmaster-system", "trainmaster-webhook"]
    configuration = found["MutatingWebhookConfiguration", "", "trainmaster"]
    pod = found["Deployment", "trainmaster-system", "trainmaster-webhook"]["spec"]["template"]["spec"]

    roles = [name for kind, _, name in found if "Role" in kind or kind == "Secret"]
    assert not [name for name in roles if "webhook" in name]
    assert certificate["spec"]["dnsNames"][0] == "trainmaster-webhook.trainmaster-system.svc"
    assert pod["volumes"][0]["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert "--cert-dir=/etc/webhook" in pod["containers"][0]["args"]
    inject = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert inject == "trainmaster-system/trainmaster-webhook"


def test_a_gang_scheduler_comes_with_the_rights_for_its_groups(helm_command: Helm) -> None:
    found = rendered(helm_command, "gangScheduler: volcano")
    [rule] = found["ClusterRole", "", "trainmaster-operator-gang"]["rules"]
    [written] = yaml.safe_load_all((manager.HERE / "rbac-gang.yaml").read_text().split("---")[0])

    assert rule["apiGroups"] == ["scheduling.volcano.sh"]
    assert rule["verbs"] == written["rules"][0]["verbs"]
    assert "--gang-scheduler-name=volcano" in arguments(found, "trainmaster-operator")


@pytest.mark.parametrize(("values", "left_out"), [("", {"nervexjob"}), (f"kinds: [{', '.join(GROUPS)}]", set())])
def test_helm_test_has_a_job_of_every_kind(helm_command: Helm, values: str, left_out: set[str]) -> None:
    """A NerveXJob needs an AggregatorConfig, of which Helm knows nothing without a cluster."""
    found = objects(helm_command(*RELEASE, values=values))
    jobs = yaml.safe_load_all(found["ConfigMap", "trainmaster-system", "trainmaster-test"]["data"]["jobs.yaml"])
    groups = {job["apiVersion"].partition("/")[0] for job in jobs}

    assert groups == {kind.resource.group for name, kind in GROUPS.items() if name not in left_out}
