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

    helm("uninstall", "trainmaster", place, "--wait")
    assert everything(plane) == before


def test_an_upgrade_updates_the_definitions(plane: ControlPlane, helm: Helm) -> None:
    place = f"--namespace={NAMESPACE}"
    helm("install", "trainmaster", CHART, place)
    name = all_crds()[0]["metadata"]["name"]
    field = "/spec/versions/0/schema/openAPIV3Schema/properties/status"
    plane.kubectl("patch", "crd", name, "--type=json", f'--patch=[{{"op":"remove","path":"{field}"}}]')
    helm("upgrade", "trainmaster", CHART, place)
    found = json.loads(plane.kubectl("get", "crd", name, "--output=json"))
    helm("uninstall", "trainmaster", place, "--wait")

    assert "status" in found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def test_definitions_that_are_kept_outlive_the_release(plane: ControlPlane, helm: Helm) -> None:
    place = f"--namespace={NAMESPACE}"
    helm("install", "trainmaster", CHART, place, values="crds: {keep: true}")
    helm("uninstall", "trainmaster", place, "--wait")
    kept = {body["metadata"]["name"] for body in all_crds()}

    assert {each.partition("/")[2] for each in everything(plane) if each.startswith("CustomResource")} == kept
    # Helm does not take what another release left; the error says how to install beside it.
    helm("install", "trainmaster", CHART, place, values="crds: {install: false}")
    helm("uninstall", "trainmaster", place, "--wait")
    plane.kubectl("delete", "crd", *sorted(kept))


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
