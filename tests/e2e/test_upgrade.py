"""From this release to the one before it, and back, in both orders, with jobs of every kind that run."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import pytest

from deploy import manager
from testbed.cluster.cluster import Cluster, ClusterFailed
from tests.build import Json
from tests.e2e import previous
from tests.e2e.conftest import NAMESPACE
from tests.e2e.kinds import KINDS
from tests.e2e.report import Report, Seen
from tests.e2e.scene import Scene

END = "/tmp/end"
UNTIL_TOLD = ("sh", "-c", f"until [ -e {END} ]; do sleep 0.2; done")
END_TIMEOUT = 120.0
DEFINITION = "CustomResourceDefinition"
OPERATOR = "trainmaster-operator"


class Release:
    """What is applied: definitions, and all the rest."""

    def __init__(self, bodies: Sequence[Json], image: str) -> None:
        self.image = image
        self.definitions = [body for body in bodies if body["kind"] == DEFINITION]
        self.programs = [body for body in bodies if body["kind"] != DEFINITION]


@pytest.fixture(scope="module")
def before(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The previous release; its image is on all nodes. This one is installed again at the end."""
    folder = tmp_path_factory.mktemp("previous")
    tree, image = previous.checkout(folder / "tree"), folder / "image.tar"
    previous.write_image(tree, image)
    for name in installed.nodes:
        installed.node(name).load(image)
    image.unlink()
    yield Release(previous.bodies(tree), previous.IMAGE)
    this = this_release()
    apply(installed, [*this.definitions, *this.programs])
    wait_for(installed, this)


def this_release() -> Release:
    return Release(manager.bodies(manager.ALL), manager.image())


def apply(cluster: Cluster, bodies: Sequence[Json]) -> None:
    lines = "\n".join(map(json.dumps, bodies))
    cluster.kubectl("apply", "--server-side", "--filename=-", stdin=lines)


def images_of(cluster: Cluster, program: str) -> list[str]:
    """The images of the pods of a program that run."""
    pods = cluster.control.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return [
        pod["spec"]["containers"][0]["image"]
        for pod in pods
        if pod["metadata"]["name"].startswith(program) and pod["status"]["phase"] == "Running"
    ]


def wait_for(cluster: Cluster, release: Release) -> None:
    """Wait until all programs are of this release, and no other runs."""
    cluster.kubectl("rollout", "status", "deployment", f"--namespace={NAMESPACE}", "--timeout=120s")
    cluster.wait("the operators are of one release", lambda: set(images_of(cluster, OPERATOR)) == {release.image}, 60)


def test_no_pod_is_touched_by_an_upgrade_or_a_downgrade_in_any_order(
    installed: Cluster, before: Release, written: Report
) -> None:
    """CRDs first is what docs/install.md says. The other order does no harm: an operator that finds definitions without
    its fields is not ready, so the one before it stays until they are there."""
    this = this_release()
    newer, older, later = (Scene(installed, name) for name in ("newer", "older", "upgraded"))
    running = {}
    try:
        newer.create(command=UNTIL_TOLD)
        running[newer] = newer.wait_steady()
        for release, is_right in ((before, True), (this, True), (before, False), (this, False)):
            parts = [release.definitions, release.programs]
            first, last = parts if is_right else reversed(parts)
            apply(installed, first)
            if not is_right:
                installed.wait("a new one is there", partial(runs, installed, release), 60)
            apply(installed, last)
            wait_for(installed, release)
            if older not in running:
                older.create(command=UNTIL_TOLD)
                running[older] = older.wait_steady()
            assert {scene: scene.wait_steady() for scene in running} == running

        for scene in running:
            end(installed, scene)
        later.create()
        later.wait_steady()
        seen = Seen("goes on, ends as it should")
        written.fault("upgrade and downgrade, in both orders", {kind.name: seen for kind in KINDS})
    finally:
        for scene in (newer, older, later):
            scene.remove()


def runs(cluster: Cluster, release: Release) -> bool:
    """Does an operator of this release run?"""
    return release.image in images_of(cluster, OPERATOR)


def end(cluster: Cluster, scene: Scene) -> None:
    """Let all programs end, and wait until all jobs have succeeded."""
    for kind in KINDS:
        for pod in scene.pods()[kind.name].values():
            # The job may have ended with the pods before this one.
            with suppress(ClusterFailed):
                cluster.kubectl("exec", f"--namespace={scene.namespace(kind)}", pod.name, "--", "touch", END)
    results: dict[str, str] = {}

    def have_ended() -> bool:
        results.update({kind.name: kind.row.result(scene.job(kind)) for kind in KINDS})
        return all(results.values())

    cluster.wait("all jobs have ended", have_ended, END_TIMEOUT)
    assert set(results.values()) == {"Succeeded"}, results


def test_a_number_of_replicas_that_was_changed_by_hand_is_not_set_back(installed: Cluster) -> None:
    """kubectl says whose it is, and what to do."""
    scale = ("scale", "deployment/trainmaster-server", f"--namespace={NAMESPACE}")
    try:
        installed.kubectl(*scale, "--replicas=3")
        with pytest.raises(ClusterFailed, match=r"(?s)conflict.*\.spec\.replicas"):
            apply(installed, this_release().programs)
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/trainmaster-server"
        assert installed.control.get(path)["spec"]["replicas"] == 3
    finally:
        installed.kubectl(*scale, "--replicas=2")
