"""kubectl, unchanged, on the embedded API."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from tests.embedded.apiserver.client import Client

Kubectl = Callable[..., Awaitable[str]]

JOB = """
apiVersion: diengine.opendilab.org/v1alpha1
kind: DIJob
metadata: {name: a}
spec:
  coordinator: {template: {spec: {containers: [{name: di-container, image: i}]}}}
"""


@pytest.fixture
def kubectl(binaries: Path, api: Client, tmp_path: Path) -> Kubectl:
    """Runs kubectl and answers what it printed; whatever it had to complain about fails the test."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": api.url, "certificate-authority": str(api.ca_file)}}],
        "users": [{"name": "x", "user": {"token": api.token}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config"), "PATH": "/usr/bin:/bin"}

    def run(*arguments: str, stdin: str = "", editor: str = "") -> str:
        done = subprocess.run(
            [binaries / "kubectl", *arguments],
            input=stdin,
            env={**environ, "EDITOR": editor},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), arguments
        return done.stdout

    async def call(*arguments: str, stdin: str = "", editor: str = "") -> str:
        return await asyncio.to_thread(run, *arguments, stdin=stdin, editor=editor)

    return call


async def test_the_life_of_a_job(kubectl: Kubectl) -> None:
    assert "created" in await kubectl("apply", "-f", "-", stdin=JOB)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=JOB)
    assert "configured" in await kubectl("apply", "-f", "-", stdin=JOB.replace("image: i", "image: j"))
    assert (await kubectl("get", "dijob", "a", "-o", "jsonpath={.metadata.generation}")) == "2"
    assert "NAME" in await kubectl("get", "dijobs", "-o", "wide")
    assert "image: j" in await kubectl("get", "dijob", "a", "-o", "yaml")
    assert "labeled" in await kubectl("label", "dijob", "a", "tier=1")
    assert "annotated" in await kubectl("annotate", "dijob", "a", "note=x")
    assert "edited" in await kubectl("edit", "dijob", "a", editor="sed -i s/tier:/level:/")
    assert "dijob.diengine.opendilab.org/a" in await kubectl("get", "dijob", "-l", "level", "-o", "name")
    assert "Kind:         DIJob" in await kubectl("describe", "dijob", "a")
    patch = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl("patch", "dijob", "a", "--subresource=status", "--type=merge", "-p", patch)
    assert "condition met" in await kubectl("wait", "dijob/a", "--for=condition=Ready", "--timeout=5s")
    assert "deleted" in await kubectl("delete", "dijob", "a")
    assert await kubectl("get", "dijob", "-o", "name") == ""


async def test_what_kubectl_creates_by_itself(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "other")
    await kubectl("create", "configmap", "a", "--from-literal=x=y", "-n", "other")
    await kubectl("create", "secret", "generic", "a", "--from-literal=x=y", "-n", "other")
    await kubectl("create", "service", "clusterip", "a", "--tcp=80:8080", "-n", "other")
    await kubectl("run", "a", "--image=i", "-n", "other")
    assert "pod/a" in await kubectl("get", "all", "-n", "other")
    assert "y" in await kubectl("get", "configmap", "a", "-n", "other", "-o", "jsonpath={.data.x}")
    assert "Status:       Pending" in await kubectl("describe", "pod", "a", "-n", "other")
    assert "deleted" in await kubectl("delete", "namespace", "other")
    assert "other" not in await kubectl("get", "namespaces", "-o", "name")


async def test_what_there_is(kubectl: Kubectl) -> None:
    assert "aitrainingjobs" in await kubectl("api-resources")
    assert "Server Version" in await kubectl("version")
    assert "diengine.opendilab.org/v1alpha1" in await kubectl("api-versions")
    assert "coordinator" in await kubectl("explain", "dijob.spec")
