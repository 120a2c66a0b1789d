"""A cluster for the whole run, with our image and the examples on its nodes, and the installation on it."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.cluster.build import NotPossible, require
from testbed.cluster.cluster import Cluster
from testbed.cluster.config import LEASE_SECONDS
from testbed.cluster.control import EVICTION_SECONDS
from testbed.operator import REPOSITORY
from tests.e2e import report
from tests.e2e.audit import Audit
from tests.e2e.report import Report

NAMESPACE = "trainmaster-system"


ORDER = (
    "test_install.py",
    "test_takeover.py",
    "test_installed.py",
    "test_walk.py",
    "test_upgrade.py",
    "test_fault.py",
    "test_rights.py",
)
"""A cluster is empty once, jobs train before anything is broken, and the rights are compared with all that was done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in ours:
        item.add_marker(pytest.mark.e2e)
        item.add_marker(pytest.mark.timeout(900))
    ours.sort(key=lambda item: ORDER.index(item.path.name))
    items[:] = [item for item in items if item not in ours] + ours


@pytest.fixture(scope="session")
def written(request: pytest.FixtureRequest) -> Iterator[Report]:
    """What the tests saw; it becomes the page when all of them have passed."""
    seen = Report()
    yield seen
    if request.session.testsfailed == 0 and seen.facts and seen.trained and seen.faults:
        report.FILE.write_text(seen.text(lease=LEASE_SECONDS, eviction=EVICTION_SECONDS))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster that is up, or one that is taken down at the end."""
    try:
        require()
    except NotPossible as error:
        pytest.skip(str(error))
    cluster = Cluster()
    if cluster.is_up:
        yield cluster
        return
    cluster.up()
    yield cluster
    cluster.down()
    assert left_behind(cluster) == []


@pytest.fixture(scope="session")
def audit(cluster: Cluster) -> Audit:
    """What was asked of the API server since the cluster is up."""
    return Audit(cluster.control.audit)


@pytest.fixture(scope="session")
def installed(cluster: Cluster, written: Report) -> Cluster:
    """The cluster with everything installed by one manifest."""
    took = install(cluster, "install.yaml")
    written.fact("`kubectl apply -f deploy/install.yaml`, until all Deployments are Available", f"{took:.1f} s")
    give_config(cluster, NAMESPACE)
    give_config(cluster, "nervex-system")  # the release before this one looks for it there
    return cluster


def give_config(cluster: Cluster, place: str) -> None:
    """The AggregatorConfig that every NerveXJob needs, in the namespace of the installation."""
    config = next(yaml.safe_load_all((REPOSITORY / "examples" / "nervexjob-mock.yaml").read_text()))
    config["spec"]["aggregator"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    config["metadata"]["namespace"] = place
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}
    cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all([namespace, config]))


def left_behind(cluster: Cluster) -> list[str]:
    """What is on the machine of a cluster that was taken down."""
    files = [
        Path("/sys/class/net").glob("tm*"),
        Path("/run/netns").glob("tm-*"),
        Path("/sys/fs/cgroup").glob("*/trainmaster-*"),
    ]
    programs = [link for link in Path("/proc").glob("[0-9]*/exe") if is_program_of(cluster, link)]
    return sorted(map(str, [*itertools.chain(*files), *programs, *([cluster.folder] if cluster.is_up else [])]))


def is_program_of(cluster: Cluster, link: Path) -> bool:
    try:
        return link.readlink().is_relative_to(cluster.node_binaries)
    except OSError:
        return False


def install(cluster: Cluster, *manifests: str) -> float:
    """Apply manifests of deploy/; answers how many seconds it took until all Deployments were available."""
    started = time.monotonic()
    files = [f"--filename={REPOSITORY / 'deploy' / name}" for name in manifests]
    cluster.kubectl("apply", "--server-side", *files)
    cluster.wait("all Deployments are available", lambda: all_available(cluster), 120)
    return time.monotonic() - started


def all_available(cluster: Cluster) -> bool:
    """Have all Deployments of the cluster all of their replicas?"""
    return all(
        body["status"].get("availableReplicas", 0) == body["spec"]["replicas"]
        for body in cluster.control.get("/apis/apps/v1/deployments")["items"]
    )
