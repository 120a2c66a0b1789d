"""The installation by manifest, on a cluster that has nothing else."""

import json
import time
from pathlib import Path

import pytest

from deploy.helm import CHART
from testbed.cluster.cluster import Cluster, ClusterFailed
from testbed.helm import Helm
from testbed.operator import REPOSITORY
from tests.e2e.conftest import NAMESPACE, install
from tests.e2e.report import Report

MANAGERS = ("di-manager.yaml", "nervex-manager.yaml", "mx-manager.yaml")


def test_the_manifests_of_single_kinds_can_be_installed_at_once_and_removed(cluster: Cluster, written: Report) -> None:
    """Before `installed`: of two installations of a kind, one waits."""
    took = install(cluster, *MANAGERS)
    written.fact(
        "`kubectl apply` of di-, nervex- and mx-manager.yaml at once, until all Deployments are Available",
        f"{took:.1f} s",
    )

    for name in MANAGERS:
        cluster.kubectl("delete", f"--filename={REPOSITORY / 'deploy' / name}", "--timeout=120s")
    assert cluster.control.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"] == []


def test_the_chart_is_installed_tested_and_removed(cluster: Cluster, written: Report, tmp_path: Path) -> None:
    """`helm test` runs a job of each kind."""
    helm, place = Helm(tmp_path, cluster.kubeconfig), f"--namespace={NAMESPACE}"
    started = time.monotonic()
    helm("install", "trainmaster", CHART, place, "--create-namespace", "--wait", "--timeout=3m", timeout=200)
    written.fact("`helm install --wait` of the chart", f"{time.monotonic() - started:.1f} s")
    helm("test", "trainmaster", place, "--timeout=4m", timeout=260)

    helm("uninstall", "trainmaster", place, "--wait", "--timeout=3m", timeout=200)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
    assert cluster.control.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"] == []


def test_every_program_runs_as_nobody_on_a_read_only_root(installed: Cluster) -> None:
    """The image is the one that `make image` builds."""
    listed = installed.control.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    assert len(listed) == 6
    for pod in listed:
        [container] = pod["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        code = "import os; print(os.getuid()); open('/opt/trainmaster/new', 'w')"
        command = ("/opt/trainmaster/bin/python", "-c", code)
        with pytest.raises(ClusterFailed, match="Read-only file system"):
            installed.kubectl("exec", f"--namespace={NAMESPACE}", pod["metadata"]["name"], "--", *command)
        identity = installed.kubectl("exec", f"--namespace={NAMESPACE}", pod["metadata"]["name"], "--", "id", "-u")
        assert identity.strip() == "65532"


def test_the_webhook_answers_through_its_service(installed: Cluster) -> None:
    """The API server reaches its pods, and trusts the certificate that it made."""
    container = {"name": "other", "image": "busybox"}
    spec = {"coordinator": {"template": {"spec": {"containers": [container]}}}}
    job = {"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", "metadata": {"name": "odd"}, "spec": spec}
    create = ("create", "--filename=-", "--dry-run=server")

    stored = json.loads(installed.kubectl(*create, "--output=json", stdin=json.dumps(job)))
    assert stored["spec"]["cleanPodPolicy"] == "Running"
    with pytest.raises(ClusterFailed, match="none is called di-container"):
        installed.kubectl(*create, "--warnings-as-errors", stdin=json.dumps(job))
