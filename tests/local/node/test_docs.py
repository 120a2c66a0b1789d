"""docs/node.md: its commands make a kubeconfig with which a node works."""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from testbed.admin import Admin
from testbed.certificate import Authority, Pair
from testbed.operator import REPOSITORY
from testbed.plane import ControlPlane
from tests.local.node.life import Scene

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="the commands need openssl")


@pytest.fixture
def signing_plane(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Signs certificates of nodes, and gives nodes the rights of nodes."""
    signer = Authority(tmp_path_factory.mktemp("signer"))
    rights = ("--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
    arguments = (*rights, f"--client-ca-file={signer.ca_file}")
    with ControlPlane(binaries=binaries, apiserver_arguments=arguments) as plane:
        signing = (f"--cluster-signing-cert-file={signer.ca_file}", f"--cluster-signing-key-file={signer.key_file()}")
        plane.start_controller_manager(["certificatesigningrequest-signing-controller"], arguments=signing)
        yield plane


async def test_the_commands_make_a_kubeconfig_for_a_node(
    signing_plane: ControlPlane, node_pair: Pair, tmp_path: Path
) -> None:
    (commands,) = re.findall(r"(?ms)^```sh\n(.*?)^```", (REPOSITORY / "docs" / "node.md").read_text())
    kubectl = signing_plane.binary("kubectl").parent
    environ = {"PATH": f"{kubectl}:{os.environ['PATH']}", "KUBECONFIG": str(signing_plane.kubeconfig())}
    script = commands.replace("NODE=laptop", "NODE=node-docs")
    signing_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "docs"}})

    run = partial(subprocess.run, cwd=tmp_path, env=environ, check=True, timeout=120)
    await asyncio.to_thread(run, ["sh", "-euc", script])

    async with Admin.of(signing_plane) as admin:
        scene = Scene(signing_plane, admin, "docs", tmp_path, node_pair)
        kubeconfig = tmp_path / "node-docs.kubeconfig"
        async with scene.node(kubeconfig=kubeconfig, is_strict=True, is_tainted=True):
            await scene.pod("a", "exit 0")
            pod = await scene.ended("a")
        scene.sweep()

    assert pod["status"]["phase"] == "Succeeded"
