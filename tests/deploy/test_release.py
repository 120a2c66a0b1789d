"""The chart and the manifests on a real API server: installed, changed by hand, upgraded, rolled back and removed.

There is no kubelet: pods are not created, and nothing waits for them.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm import CHART
from deploy.manager import HERE, VARIANTS
from testbed.helm import Helm, HelmFailed
from testbed.plane import CONTROLLERS, ControlPlane, KubectlFailed
from tests.deploy.conftest import delete_definitions, serve_all
from trainmaster.kinds.crd import all_crds

Object = dict[str, Any]

NAMESPACE = "trainmaster-system"
KINDS = (
    "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,priorityclass,"
    "flowschema,prioritylevelconfiguration,mutatingwebhookconfiguration,validatingwebhookconfiguration,"
    "deployment,service,serviceaccount,secret,configmap,role,rolebinding,networkpolicy,poddisruptionbudget"
)
"""All kinds of objects that an installation has."""


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    with ControlPlane(binaries=binaries) as plane:
        plane.start_controller_manager(CONTROLLERS)
        plane.kubectl("create", "namespace", NAMESPACE)
        yield plane


@pytest.fixture(scope="module")
def helm(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"), plane.kubeconfig())


def everything(plane: ControlPlane) -> set[str]:
    listed = plane.kubectl("get", KINDS, "--all-namespaces", "--output=json")
    return {
        f"{body['kind']} {body['metadata'].get('namespace', '')}/{body['metadata']['name']}"
        for body in json.loads(listed)["items"]
    }


def replicas(plane: ControlPlane, name: str, namespace: str = NAMESPACE) -> int:
    found = plane.kubectl("get", "deployment", name, f"--namespace={namespace}", "--output=jsonpath={.spec.replicas}")
    return int(found)


def image(plane: ControlPlane) -> str:
    path = "--output=jsonpath={.spec.template.spec.containers[0].image}"
    return plane.kubectl("get", "deployment", "trainmaster-operator", f"--namespace={NAMESPACE}", path)


def generations(plane: ControlPlane) -> list[str]:
    """Of specs: a change of one rolls out pods, or is a new definition."""
    listed = plane.kubectl("get", "deployment,crd", f"--namespace={NAMESPACE}", "--output=json")
    return [f"{body['metadata']['name']} {body['metadata']['generation']}" for body in json.loads(listed)["items"]]


def uninstall(plane: ControlPlane, helm: Helm) -> None:
    """And the definitions, which no command of Helm deletes."""
    helm("uninstall", "trainmaster", f"--namespace={NAMESPACE}", "--wait")
    delete_definitions(plane)


def scale(plane: ControlPlane, name: str, count: int, namespace: str = NAMESPACE) -> None:
    plane.kubectl("scale", "deployment", name, f"--replicas={count}", f"--namespace={namespace}")


def test_a_release_is_installed_upgraded_rolled_back_and_leaves_nothing(plane: ControlPlane, helm: Helm) -> None:
    place = f"--namespace={NAMESPACE}"
    before = everything(plane)
    helm("install", "trainmaster", CHART, place)
    assert replicas(plane, "trainmaster-operator") == 2

    # A change by hand survives an upgrade; a value is stronger.
    scale(plane, "trainmaster-operator", 3)
    helm("upgrade", "trainmaster", CHART, place, values="image: {tag: next}")
    assert (image(plane), replicas(plane, "trainmaster-operator")) == ("trainmaster:next", 3)
    helm("upgrade", "trainmaster", CHART, place, values="operator: {replicas: 1}")
    assert replicas(plane, "trainmaster-operator") == 1

    helm("rollback", "trainmaster", "2", place)
    assert image(plane) == "trainmaster:next"

    uninstall(plane, helm)
    assert everything(plane) == before


def test_an_upgrade_updates_the_definitions(plane: ControlPlane, helm: Helm) -> None:
    place = f"--namespace={NAMESPACE}"
    helm("install", "trainmaster", CHART, place)
    name = all_crds()[0]["metadata"]["name"]
    field = "/spec/versions/0/schema/openAPIV3Schema/properties/status"
    plane.kubectl("patch", "crd", name, "--type=json", f'--patch=[{{"op":"remove","path":"{field}"}}]')
    helm("upgrade", "trainmaster", CHART, place)
    found = json.loads(plane.kubectl("get", "crd", name, "--output=json"))
    uninstall(plane, helm)

    assert "status" in found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def test_helm_test_has_a_nervexjob_where_such_jobs_can_run(plane: ControlPlane, helm: Helm) -> None:
    place = f"--namespace={NAMESPACE}"
    template = {"spec": {"containers": [{"name": "aggregator", "image": "any"}]}}
    config = {
        "apiVersion": "nervex.sensetime.com/v1alpha1",
        "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config", "namespace": NAMESPACE},
        "spec": {"aggregator": {"template": template}},
    }
    helm("install", "trainmaster", CHART, place)
    before = helm("get", "hooks", "trainmaster", place)
    serve_all(plane)
    plane.kubectl("create", "--filename=-", input=json.dumps(config))
    helm("upgrade", "trainmaster", CHART, place)
    after = helm("get", "hooks", "trainmaster", place)
    uninstall(plane, helm)

    assert "kind: NerveXJob" not in before
    assert "kind: NerveXJob" in after


# --- two ways of installing, one after the other ---


def test_an_apply_can_be_repeated_and_helm_does_not_take_over_what_was_applied(plane: ControlPlane, helm: Helm) -> None:
    apply = ("apply", f"--filename={HERE / 'install.yaml'}")
    plane.kubectl(*apply)
    before = generations(plane)
    again = plane.kubectl(*apply)
    after = generations(plane)
    with pytest.raises(HelmFailed, match="exists and cannot be imported into the current release"):
        helm("install", "trainmaster", CHART, f"--namespace={NAMESPACE}")
    serve_all(plane)
    plane.kubectl("delete", "--ignore-not-found", f"--filename={HERE / 'install.yaml'}", timeout=120)
    plane.kubectl("create", "namespace", NAMESPACE)

    assert "created" not in again
    assert before == after != []


def test_an_apply_over_a_release_changes_nothing_that_helm_needs(plane: ControlPlane, helm: Helm) -> None:
    place = f"--namespace={NAMESPACE}"
    before = everything(plane)
    helm("install", "trainmaster", CHART, place)
    plane.kubectl("apply", f"--filename={HERE / 'install.yaml'}")
    helm("upgrade", "trainmaster", CHART, place, values="image: {tag: next}")

    assert image(plane) == "trainmaster:next"
    uninstall(plane, helm)
    assert everything(plane) == before


# --- one namespace ---


def test_one_namespace_is_installed_by_who_has_rights_there_alone(plane: ControlPlane, tmp_path: Path) -> None:
    """The account is admin of the namespace, and has the rights on jobs that it gives away."""
    plane.apply(HERE / "crds.yaml")
    plane.apply(HERE / "rbac.yaml")  # its ClusterRoles are what a cluster has for users
    plane.kubectl("create", "namespace", "team")
    plane.kubectl("create", "serviceaccount", "lead", "--namespace=team")
    admin = "--clusterrole=cluster-admin"  # bound in the namespace: every right there, none elsewhere
    plane.kubectl("create", "rolebinding", "lead", admin, "--serviceaccount=team:lead", "--namespace=team")
    token = plane.kubectl("create", "token", "lead", "--namespace=team").strip()
    config = yaml.safe_load(plane.kubeconfig().read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    lead = Helm(tmp_path, tmp_path / "kubeconfig")

    with pytest.raises(HelmFailed, match="forbidden"):
        lead("install", "trainmaster", CHART, "--namespace=team")
    before = everything(plane)
    lead("install", "trainmaster", CHART, "--namespace=team", values="namespace: team")
    assert replicas(plane, "trainmaster-operator", "team") == 2
    lead("upgrade", "trainmaster", CHART, "--namespace=team", values="{namespace: team, image: {tag: next}}")
    lead("uninstall", "trainmaster", "--namespace=team")
    assert everything(plane) == before


# --- kubectl apply ---


def test_replicas_of_one_di_server_survive_an_apply(plane: ControlPlane) -> None:
    variant = VARIANTS[1]
    plane.kubectl("apply", f"--filename={variant.file}")
    scale(plane, "nervex-server", 2, variant.namespace)
    plane.kubectl("apply", f"--filename={variant.file}")

    assert replicas(plane, "nervex-server", variant.namespace) == 2


def test_a_server_side_apply_does_not_change_replicas_in_silence(plane: ControlPlane) -> None:
    apply = ("apply", "--server-side", "--force-conflicts", f"--filename={HERE / 'install.yaml'}")
    plane.kubectl(*apply)
    scale(plane, "trainmaster-operator", 3)

    with pytest.raises(KubectlFailed, match=r"(?s)conflict.*\.spec\.replicas"):
        plane.kubectl("apply", "--server-side", f"--filename={HERE / 'install.yaml'}")
    assert replicas(plane, "trainmaster-operator") == 3


def test_replicas_of_a_kustomization_are_those_that_it_names(
    plane: ControlPlane, binaries: Path, tmp_path: Path
) -> None:
    (tmp_path / "install.yaml").write_text((HERE / "install.yaml").read_text())
    own = {"resources": ["install.yaml"], "replicas": [{"name": "trainmaster-operator", "count": 3}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    made = subprocess.run(
        [binaries / "kubectl", "kustomize", tmp_path], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    plane.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", input=made)

    assert replicas(plane, "trainmaster-operator") == 3
    assert replicas(plane, "trainmaster-webhook") == 2
