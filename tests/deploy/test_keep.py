"""No command of Helm deletes a definition: with it, the API server deletes every job of every namespace.

Helm reads the annotation helm.sh/resource-policy in two places. An upgrade or rollback reads it on the cluster, of what
the next revision no longer has. An uninstall reads it in the manifest that is stored with the release.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.helm import CHART
from testbed.helm import Helm, HelmFailed
from testbed.plane import CONTROLLERS, ControlPlane
from tests.deploy.conftest import delete_definitions, serve_all
from tests.manifests.build import aitrainingjob, mxjob
from trainmaster.kinds.crd import all_crds

NAMESPACE = "trainmaster-system"
PLACE = f"--namespace={NAMESPACE}"
TENANT = "prod"
NAMES = {body["metadata"]["name"] for body in all_crds()}
WITHOUT_DEFINITIONS = "crds: {install: false}"


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    with ControlPlane(binaries=binaries) as plane:
        plane.start_controller_manager(CONTROLLERS)
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("create", "namespace", TENANT)
        yield plane


@pytest.fixture(scope="module")
def helm_command(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"), plane.kubeconfig())


@pytest.fixture
def helm(plane: ControlPlane, helm_command: Helm) -> Iterator[Helm]:
    """Nothing of a release is there, and nothing of it stays."""
    yield helm_command
    helm_command("uninstall", "trainmaster", PLACE, "--wait", "--ignore-not-found")
    if definitions(plane):
        delete_definitions(plane)


@pytest.fixture
def older_chart(tmp_path: Path) -> Path:
    """A chart as it was before definitions were kept."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    (chart / "templates" / "keep.yaml").unlink()
    file = chart / "templates" / "crds.yaml"
    before = file.read_text()
    file.write_text(before.replace("  annotations:\n    helm.sh/resource-policy: keep\n", ""))
    assert file.read_text() != before
    values = chart / "values.yaml"
    values.write_text(values.read_text().replace("  install: true\n", "  install: true\n  keep: false\n"))
    return chart


def definitions(plane: ControlPlane) -> dict[str, str]:
    """The uid of each."""
    listed = json.loads(plane.kubectl("get", "crd", "--output=json"))["items"]
    return {body["metadata"]["name"]: body["metadata"]["uid"] for body in listed}


def jobs(plane: ControlPlane) -> set[str]:
    listed = plane.kubectl("get", "aitrainingjobs,mxjobs.kubeflow.org", f"--namespace={TENANT}", "--output=json")
    return {body["metadata"]["uid"] for body in json.loads(listed)["items"]}


def create_jobs(plane: ControlPlane) -> None:
    serve_all(plane)
    for job in (aitrainingjob(), mxjob()):
        plane.kubectl("create", f"--namespace={TENANT}", "--filename=-", input=json.dumps(job))


def leave_out(helm: Helm) -> None:
    helm("upgrade", "trainmaster", CHART, PLACE, "--reuse-values", "--set=crds.install=false")


def choose_a_namespace(helm: Helm) -> None:
    helm("upgrade", "trainmaster", CHART, PLACE, "--reuse-values", f"--set=namespace={NAMESPACE}")


def uninstall(helm: Helm) -> None:
    helm("uninstall", "trainmaster", PLACE, "--wait")


def leave_out_and_uninstall(helm: Helm) -> None:
    leave_out(helm)
    uninstall(helm)


@pytest.mark.parametrize("command", [leave_out, choose_a_namespace, uninstall, leave_out_and_uninstall])
def test_definitions_and_jobs_outlive(plane: ControlPlane, helm: Helm, command: Callable[[Helm], None]) -> None:
    helm("install", "trainmaster", CHART, PLACE)
    create_jobs(plane)
    before = definitions(plane), jobs(plane)

    command(helm)

    assert (definitions(plane), jobs(plane)) == before
    assert before[0].keys() == NAMES
    assert len(before[1]) == 2


def test_definitions_and_jobs_outlive_a_rollback_to_a_revision_without_them(plane: ControlPlane, helm: Helm) -> None:
    helm("install", "trainmaster", CHART, PLACE, values=WITHOUT_DEFINITIONS)
    helm("upgrade", "trainmaster", CHART, PLACE, values="crds: {install: true}")
    create_jobs(plane)
    before = definitions(plane), jobs(plane)

    helm("rollback", "trainmaster", "1", PLACE)

    assert (definitions(plane), jobs(plane)) == before
    assert len(before[1]) == 2


@pytest.mark.parametrize("command", [leave_out, choose_a_namespace])
def test_an_upgrade_that_would_delete_definitions_of_an_older_release_is_refused(
    plane: ControlPlane, helm: Helm, older_chart: Path, command: Callable[[Helm], None]
) -> None:
    helm("install", "trainmaster", older_chart, PLACE)
    create_jobs(plane)
    before = definitions(plane), jobs(plane)

    with pytest.raises(HelmFailed, match="would delete definitions") as refused:
        command(helm)
    after_refusal = definitions(plane), jobs(plane)
    advice = str(refused.value).partition("kubectl ")[2].split()
    plane.kubectl(*advice)
    command(helm)

    assert after_refusal == before
    assert (definitions(plane), jobs(plane)) == before


def test_an_upgrade_of_an_older_release_keeps_its_definitions_from_then_on(
    plane: ControlPlane, helm: Helm, older_chart: Path
) -> None:
    helm("install", "trainmaster", older_chart, PLACE)
    create_jobs(plane)
    before = definitions(plane), jobs(plane)

    helm("upgrade", "trainmaster", CHART, PLACE, "--reuse-values")
    leave_out(helm)
    uninstall(helm)

    assert (definitions(plane), jobs(plane)) == before


def test_a_release_takes_back_the_definitions_that_it_left(plane: ControlPlane, helm: Helm) -> None:
    helm("install", "trainmaster", CHART, PLACE)
    create_jobs(plane)
    before = definitions(plane), jobs(plane)
    uninstall(helm)
    field = "/spec/versions/0/schema/openAPIV3Schema/properties/status"
    name = all_crds()[0]["metadata"]["name"]
    plane.kubectl("patch", "crd", name, "--type=json", f'--patch=[{{"op":"remove","path":"{field}"}}]')

    helm("install", "trainmaster", CHART, PLACE)

    found: Any = json.loads(plane.kubectl("get", "crd", name, "--output=json"))
    assert "status" in found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert (definitions(plane), jobs(plane)) == before


def test_another_release_does_not_take_them(plane: ControlPlane, helm: Helm) -> None:
    helm("install", "trainmaster", CHART, PLACE)
    uninstall(helm)

    with pytest.raises(HelmFailed, match="exists and cannot be imported into the current release"):
        helm("install", "other", CHART, PLACE)
    helm("install", "trainmaster", CHART, PLACE, values=WITHOUT_DEFINITIONS)
