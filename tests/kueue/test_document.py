"""What docs/operating.md shows of Kueue can be typed."""

import asyncio
import re
import subprocess
from pathlib import Path

from testbed.operator import REPOSITORY
from testbed.plane import ControlPlane
from tests.faults.world import AITRAININGJOBS, PATIENCE
from tests.integration.scene import Scene

SECTION = re.compile(r"^## Kueue$(.*?)^## ", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"```yaml\n# (\S+)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)


async def test_the_queue_and_the_job_of_the_document_run(scene: Scene, plane: ControlPlane, tmp_path: Path) -> None:
    found = SECTION.search((REPOSITORY / "docs" / "operating.md").read_text())
    assert found
    for name, text in FILE.findall(found[1]):
        (tmp_path / name).write_text(text)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    environ = {
        "PATH": f"{plane.binary('kubectl').parent}:/usr/bin:/bin",
        "KUBECONFIG": str(plane.kubeconfig()),
        "HOME": str(tmp_path),
    }

    script = "set -eo pipefail\n" + "\n".join(COMMAND.findall(found[1]))
    typed = ["bash", "-c", script]
    done = await asyncio.to_thread(
        subprocess.run, typed, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    job = await scene.admin.wait_for(
        AITRAININGJOBS,
        "default",
        "ps-example",
        lambda job: job.get("status", {}).get("phase") == "Running",
        timeout=PATIENCE,
    )
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "training"}
    assert len(await scene.admin.list("kueue.x-k8s.io/v1beta2/workloads", "default")) == 1
