"""trainmaster.kube.plugin, with real programs."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kube.build import a_script
from trainmaster.core.errors import BadConfig, Unreachable
from trainmaster.kube.config import Plugin
from trainmaster.kube.plugin import run_plugin

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
SECRET = "s3cr3t"


def a_plugin(command: Path | str, **fields: Any) -> Plugin:
    return Plugin(**{"api_version": V1, "command": str(command), **fields})


def printing(path: Path, output: str) -> Path:
    return a_script(path, f"print({output!r})")


def a_credential(api_version: str = V1, **status: str) -> str:
    return msgspec.json.encode({"kind": "ExecCredential", "apiVersion": api_version, "status": status}).decode()


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_token_and_expiry_are_read(version: str, tmp_path: Path) -> None:
    output = a_credential(version, token=SECRET, expirationTimestamp="2026-11-15T12:00:00Z")
    script = printing(tmp_path / "login", output)

    status = await run_plugin(a_plugin(script, api_version=version), 10)

    assert (status.token, status.expiration_timestamp) == (SECRET, datetime(2026, 11, 15, 12, tzinfo=UTC))


async def test_plugin_gets_arguments_environment_and_exec_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    script = a_script(
        tmp_path / "login",
        f"""
        import json, os, sys
        seen = dict(args=sys.argv[1:], own=os.environ["OWN"], inherited=os.environ["INHERITED"],
                    info=json.loads(os.environ["KUBERNETES_EXEC_INFO"]), stdin=sys.stdin.read())
        status = dict(token=json.dumps(seen))
        print(json.dumps(dict(kind="ExecCredential", apiVersion="{V1}", status=status)))
        """,
    )
    plugin = a_plugin(script, args=("a", "b c"), env=(("OWN", "x"),), cluster={"server": "https://api.test"})

    status = await run_plugin(plugin, 10)

    assert msgspec.json.decode(status.token) == {
        "args": ["a", "b c"],
        "own": "x",
        "inherited": "yes",
        "stdin": "",
        "info": {
            "kind": "ExecCredential",
            "apiVersion": V1,
            "spec": {"interactive": False, "cluster": {"server": "https://api.test"}},
        },
    }


@pytest.mark.parametrize(
    ("output", "match"),
    [
        pytest.param(f"token: {SECRET}", "not an ExecCredential in JSON", id="no JSON"),
        pytest.param(a_credential(V1BETA1, token=SECRET), f"not an ExecCredential of {V1};", id="other version"),
        pytest.param(a_credential(), "neither a token nor a certificate", id="nothing"),
        pytest.param(f'{{"kind":"ExecCredential","apiVersion":"{V1}"}}', "neither a token", id="no status"),
        pytest.param(a_credential(clientCertificateData=SECRET), "only one of certificate and key", id="no key"),
        pytest.param(a_credential(token=SECRET, expirationTimestamp=SECRET), "in JSON", id="expiry is no time"),
    ],
)
async def test_invalid_output_is_explained_without_quoting_it(output: str, match: str, tmp_path: Path) -> None:
    script = printing(tmp_path / "login", output)

    with pytest.raises(BadConfig, match=match) as caught:
        await run_plugin(a_plugin(script), 10)

    assert str(caught.value).startswith(f"credential plug-in {script}: ")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        pytest.param("run: brew install login", "No such file or directory; run: brew install login", id="hint"),
        pytest.param("", "No such file or directory; install it, or choose another user", id="no hint"),
    ],
)
async def test_missing_command_is_explained_with_its_install_hint(hint: str, expected: str) -> None:
    with pytest.raises(BadConfig) as caught:
        await run_plugin(a_plugin("/nowhere/login", hint=hint), 10)

    assert str(caught.value) == f"credential plug-in /nowhere/login cannot be run: {expected}"


async def test_stderr_of_a_failing_plugin_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = a_script(tmp_path / "login", f"import sys; print('{SECRET}'); sys.exit('please log in first')")

    with pytest.raises(Unreachable) as caught:
        await run_plugin(a_plugin(script), 10)

    assert str(caught.value) == f"credential plug-in {script}: exit code 1; its stderr says why"
    assert "please log in first" in capfd.readouterr().err


async def test_plugin_that_hangs_is_given_up(tmp_path: Path) -> None:
    script = a_script(tmp_path / "login", "import time; time.sleep(60)")

    with pytest.raises(Unreachable, match=r"no credential within 0\.05 s"):
        await run_plugin(a_plugin(script), 0.05)


HOLD = "file = open({fifo!r}, 'w'); file.write('started\\n'); file.flush(); import time; time.sleep(60)"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(HOLD, id="plug-in hangs"),
        pytest.param(
            f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-ISc', {HOLD!r}])",
            id="its child hangs and holds the output",
        ),
    ],
)
async def test_plugin_without_waiting_callers_is_ended_with_all_its_children(source: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = a_script(tmp_path / "login", source.replace("{fifo!r}", repr(str(fifo))))
    task = asyncio.create_task(run_plugin(a_plugin(script), 60))
    with await asyncio.to_thread(fifo.open) as held:
        assert await asyncio.to_thread(held.readline) == "started\n"

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        # The pipe reaches its end when the last process has closed it.
        assert await asyncio.to_thread(held.read) == ""
