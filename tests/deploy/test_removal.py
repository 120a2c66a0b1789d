"""Removing install.yaml with kubectl, as docs/install.md says: with the definitions and all jobs, or without them."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.manager import ALL as INSTALLATION
from deploy.manager import HERE, to_yaml
from testbed.operator import REPOSITORY
from testbed.plane import CONTROLLERS, ControlPlane
from tests.deploy.conftest import delete_definitions, serve_all
from tests.manifests.build import aitrainingjob
from trainmaster.kinds.crd import all_crds

EVERYTHING = "kubectl delete --ignore-not-found -f deploy/install.yaml"
NO_DEFINITIONS = f"{EVERYTHING} --selector app.kubernetes.io/part-of=trainmaster"
OTHERS = "namespace,clusterrole,clusterrolebinding,validatingadmissionpolicy,priorityclass,flowschema"
"""Kinds of objects outside of the installation's namespace."""


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    with ControlPlane(binaries=binaries) as plane:
        plane.start_controller_manager(CONTROLLERS)
        yield plane


def typed(plane: ControlPlane, command: str) -> None:
    """Raises if the command ends with an error."""
    kubectl, *words = shlex.split(command.replace("deploy/", f"{HERE}/"))
    assert kubectl == "kubectl"
    plane.kubectl(*words, timeout=120)


def installed(plane: ControlPlane) -> str:
    """A job; the installation is there."""
    plane.kubectl("apply", f"--filename={HERE / 'install.yaml'}")
    serve_all(plane)
    plane.kubectl("create", "--namespace=default", "--filename=-", input=json.dumps(aitrainingjob()))
    return plane.kubectl("get", "aitrainingjobs", "--namespace=default", "--output=jsonpath={.items[*].metadata.uid}")


def definitions(plane: ControlPlane) -> set[str]:
    listed = json.loads(plane.kubectl("get", "crd", "--output=json"))
    return {body["metadata"]["name"] for body in listed["items"]}


def others(plane: ControlPlane) -> list[str]:
    names = plane.kubectl("get", OTHERS, "--output=name").split()
    return [name for name in names if "trainmaster" in name]


def test_all_of_an_installation_is_removed_and_the_command_ends_well_also_the_second_time(plane: ControlPlane) -> None:
    """The namespace goes first, so that the objects in it may be gone when they are deleted."""
    installed(plane)

    typed(plane, EVERYTHING)
    left = others(plane), definitions(plane)
    typed(plane, EVERYTHING)

    assert left == ([], set())


def test_an_installation_is_removed_without_definitions_and_jobs(plane: ControlPlane) -> None:
    job = installed(plane)

    typed(plane, NO_DEFINITIONS)
    left = plane.kubectl("get", "aitrainingjobs", "--namespace=default", "--output=jsonpath={.items[*].metadata.uid}")
    kept = definitions(plane), others(plane)
    delete_definitions(plane)

    assert left == job != ""
    assert kept == ({body["metadata"]["name"] for body in all_crds()}, [])


@pytest.mark.parametrize("command", [EVERYTHING, NO_DEFINITIONS])
def test_the_document_and_the_manifest_name_the_command(command: str) -> None:
    assert f"$ {command}\n" in (REPOSITORY / "docs" / "install.md").read_text()
    assert f"#   {command}\n" in to_yaml(INSTALLATION)
