"""The init container of docs/dijob.md that waits until lower ranks have addresses."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from testbed.operator import REPOSITORY

NSLOOKUP = """#!/bin/sh
echo "$1" >> "$ASKED"
[ "$1" != localhost ]
"""
"""As that of busybox: it asks the DNS of the cluster, which need not know localhost."""


def test_the_init_container_waits_for_lower_ranks_and_not_for_a_gap(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "dijob.md").read_text()
    (block,) = re.findall(r"```yaml\n(initContainers:.*?)```", text, re.DOTALL)
    (waits,) = yaml.safe_load(block)["initContainers"]
    program, asked = tmp_path / "nslookup", tmp_path / "asked"
    program.write_text(NSLOOKUP)
    program.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "ASKED": str(asked),
        "DI_RANK": "2",
        "DI_NODES": "a.di-job,localhost,c.di-job,d.di-job",
    }

    subprocess.run(waits["command"], env=env, check=True, timeout=20)

    assert asked.read_text().split() == ["a.di-job", "c.di-job"]
