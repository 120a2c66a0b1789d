"""Installations by manifest and by chart, on a cluster that has nothing else."""

import time
from pathlib import Path

from deploy.helm import CHART
from deploy.manager import ALL, bodies
from testbed.cluster.cluster import Cluster
from testbed.helm import Helm
from testbed.operator import REPOSITORY
from tests.e2e.audit import Audit, granted
from tests.e2e.conftest import NAMESPACE, give_config, install
from tests.e2e.life import use_all_rights
from tests.e2e.report import Report
from tests.e2e.rights import SINGLE

MANAGERS = [variant.file.name for variant in SINGLE]


def test_the_manifests_of_single_kinds_can_be_installed_at_once_and_removed(
    cluster: Cluster, written: Report, audit: Audit
) -> None:
    """Before `installed`: of two installations of a kind, one waits. Their programs use all of their rights."""
    took = install(cluster, *MANAGERS)
    written.fact(
        "`kubectl apply` of di-, nervex- and mx-manager.yaml at once, until all Deployments are Available",
        f"{took:.1f} s",
    )
    give_config(cluster, "nervex-system")
    use_all_rights(cluster, SINGLE, audit)
    assert [str(use) for variant in SINGLE for use in audit.beyond(granted(bodies(variant)))] == []

    for name in MANAGERS:
        cluster.kubectl("delete", f"--filename={REPOSITORY / 'deploy' / name}", "--timeout=120s")
    audit.forgive()
    assert cluster.control.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"] == []


def test_the_chart_is_installed_tested_and_removed(
    cluster: Cluster, written: Report, audit: Audit, tmp_path: Path
) -> None:
    """`helm test` runs a job of each kind. The rights are those of install.yaml."""
    helm, place = Helm(tmp_path, cluster.kubeconfig), f"--namespace={NAMESPACE}"
    started = time.monotonic()
    helm("install", "trainmaster", CHART, place, "--create-namespace", "--wait", "--timeout=3m", timeout=200)
    written.fact("`helm install --wait` of the chart", f"{time.monotonic() - started:.1f} s")
    helm("test", "trainmaster", place, "--timeout=4m", timeout=260)
    audit.look()
    assert [str(use) for use in audit.beyond(granted(bodies(ALL)))] == []

    helm("uninstall", "trainmaster", place, "--wait", "--timeout=3m", timeout=200)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
    audit.forgive()
    assert cluster.control.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"] == []
