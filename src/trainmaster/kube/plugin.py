"""Exec credential plug-ins (client.authentication.k8s.io): runs the command and reads its ExecCredential.

The plug-in's stdout is the credential and is never shown. Its stderr is inherited, as with kubectl: its error messages
are on the terminal or in the log of the pod.
"""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import datetime

import msgspec

from trainmaster.core.errors import BadConfig, Unreachable
from trainmaster.kube.config import Plugin, Redacted


class ExecStatus(Redacted, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(Redacted, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: ExecStatus | None = None


async def run_plugin(plugin: Plugin, timeout: float) -> ExecStatus:
    """Runs the plug-in. One that fails or hangs raises ``Unreachable``, since it usually depends on a server; one that
    is missing or writes invalid output raises ``BadConfig``."""
    process = await _start(plugin)
    output = None
    try:
        async with asyncio.timeout(timeout):
            output, _ = await process.communicate()
    except TimeoutError:
        raise Unreachable(f"{_what(plugin)}: no credential within {timeout:g} s") from None
    finally:
        if output is None:
            await _kill(process)
    if process.returncode:
        raise Unreachable(f"{_what(plugin)}: exit code {process.returncode}; its stderr says why")
    return _status(plugin, output)


def _what(plugin: Plugin) -> str:
    return f"credential plug-in {plugin.command}"


async def _start(plugin: Plugin) -> asyncio.subprocess.Process:
    spec = {"interactive": False} | ({"cluster": plugin.cluster} if plugin.cluster else {})
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    env = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    try:
        return await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        hint = plugin.hint.strip() or "install it, or choose another user"
        raise BadConfig(f"{_what(plugin)} cannot be run: {error.strerror}; {hint}") from error


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kills the whole session: a plug-in that has exited may have left a child that holds its stdout."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    if process.stdout is not None:
        # asyncio closes its end of the pipe after the other end is closed.
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await process.stdout.read()


def _status(plugin: Plugin, output: bytes) -> ExecStatus:
    what = _what(plugin)
    try:
        credential = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.MsgspecError:
        raise BadConfig(f"{what}: its output is not an ExecCredential in JSON; update the plug-in") from None
    if (credential.kind, credential.api_version) != ("ExecCredential", plugin.api_version):
        raise BadConfig(f"{what}: its output is not an ExecCredential of {plugin.api_version}; update the plug-in")
    status = credential.status or ExecStatus()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise BadConfig(f"{what}: it gave only one of certificate and key; update the plug-in")
    if not status.token and not status.client_certificate_data:
        raise BadConfig(f"{what}: it gave neither a token nor a certificate; log in with it first")
    return status
