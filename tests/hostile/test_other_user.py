"""Another user of the machine beside a local cluster. What di-server answers is in tests/local/test_caller.py."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.local.cluster import client_of, create, until_running
from tests.local.conftest import Up
from tests.local.program import containers_of
from tests.local.test_caller import NOBODY, idle

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root of a Linux can become another user"
)

ATTACK = f"""
import encodings.idna, http.client, json, os, signal, ssl, sys
target = json.loads(sys.argv[1])
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})

def tried(action):
    try:
        return action()
    except OSError as error:
        return type(error).__name__

def get(path):
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    line = http.client.HTTPSConnection(target["server"], timeout=30, context=tls)
    line.request("GET", path, headers={{"Authorization": "Bearer guessed"}})
    return line.getresponse().status

def kill(pid):
    os.kill(pid, signal.SIGTERM)
    return "sent"

print(json.dumps({{
    "files": sorted(set(tried(lambda: open(file).read() and "read") for file in target["files"])),
    "written": tried(lambda: open(target["folder"] + "/new", "w") and "written"),
    "environments": sorted(
        set(tried(lambda: open(f"/proc/{{pid}}/environ").read() and "read") for pid in target["pids"])
    ),
    "signals": sorted(set(tried(lambda: kill(pid)) for pid in target["pids"])),
    "answers": [get(path) for path in ("/api/v1/secrets", "/api/v1/pods", "/version", "/metrics", "/nowhere")],
}}))
"""


def target_of(state: Path, above: Path) -> dict[str, Any]:
    """What the other user knows. The folders above ours are opened: they are not what keeps others out."""
    for folder in (above, *above.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    kubeconfig = yaml.safe_load(next(state.rglob("*kubeconfig*")).read_text())
    return {
        "files": [str(file) for file in state.rglob("*") if file.is_file() and file.stat().st_size],
        "folder": str(state),
        "pids": containers_of(above),
        "server": urlsplit(kubeconfig["clusters"][0]["cluster"]["server"]).netloc,
    }


async def test_another_user_reads_nothing_signals_nobody_and_is_refused_by_the_api(
    up: Up, state: Path, tmp_path: Path
) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, idle("job"))
        await until_running(cluster, 1)
        target = target_of(state, tmp_path)
        done = subprocess.run(  # noqa: ASYNC221 nothing else is to be done meanwhile
            [sys.executable, "-c", ATTACK, json.dumps(target)], capture_output=True, text=True, check=True, timeout=60
        )
        is_running = containers_of(tmp_path) == target["pids"]

    assert len(target["files"]) > 3
    assert target["pids"]
    assert json.loads(done.stdout) == {
        "files": ["PermissionError"],
        "written": "PermissionError",
        "environments": ["PermissionError"],
        "signals": ["PermissionError"],
        "answers": [401] * 5,
    }
    assert is_running
