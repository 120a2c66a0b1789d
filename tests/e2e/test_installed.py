"""What was installed by one manifest."""

import json

import pytest

from testbed.cluster.cluster import Cluster, ClusterFailed
from tests.e2e.conftest import NAMESPACE


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
