"""Startup, liveness and readiness probes: one task for each, while the container runs."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import aiohttp
import msgspec

from trainmaster.local.disk import write_whole
from trainmaster.local.node.pod import Object

OUTPUT_LIMIT = 10 * 1024
MESSAGE_LIMIT = 300


class Outcome(msgspec.Struct, frozen=True):
    ok: bool
    message: str = ""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a running container for probes and hooks."""

    shim: Sequence[str]
    folder: Path
    pid: int
    cwd: str
    env: Mapping[str, str]
    ports: Mapping[str, int]
    address: str
    """Of the pod."""
    limits: Mapping[str, bool] = {}
    """What the container's program has given up; commands inside of it, too."""


async def run_handler(handler: Object, target: Target, timeout: float) -> Outcome:
    """Runs an exec, httpGet, tcpSocket or sleep handler of a probe or hook."""
    try:
        async with asyncio.timeout(timeout):
            return await _run(handler, target)
    except TimeoutError:
        return Outcome(False, f"timed out after {timeout:g}s")


async def _run(handler: Object, target: Target) -> Outcome:
    if action := handler.get("exec"):
        return await _exec(action.get("command") or [], target)
    if action := handler.get("httpGet"):
        return await _http(action, target)
    if action := handler.get("tcpSocket"):
        return await _tcp(action, target)
    if action := handler.get("sleep"):
        await asyncio.sleep(action["seconds"])
    return Outcome(True)


async def _exec(command: list[str], target: Target) -> Outcome:
    spec = {
        "argv": command,
        "env": dict(target.env),
        "cwd": target.cwd,
        "pid": target.pid,
        "limits": dict(target.limits),
    }
    file = target.folder / f"exec-{os.getpid()}-{id(spec)}.json"
    write_whole(file, msgspec.json.encode(spec))
    process = await asyncio.create_subprocess_exec(
        *target.shim,
        "exec",
        str(file),
        env=dict(target.env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None  # noqa: S101  created with a pipe
        output = await process.stdout.read(OUTPUT_LIMIT)
        while await process.stdout.read(OUTPUT_LIMIT):
            pass
        code = await process.wait()
    finally:
        file.unlink(missing_ok=True)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Outcome(code == 0, output.decode(errors="replace").strip()[:MESSAGE_LIMIT])


async def _http(action: Object, target: Target) -> Outcome:
    scheme = action.get("scheme", "HTTP").lower()
    port = _port(action["port"], target)
    path = action.get("path") or "/"
    url = f"{scheme}://{action.get('host') or target.address}:{port}{path if path.startswith('/') else '/' + path}"
    headers = {header["name"]: header["value"] for header in action.get("httpHeaders") or ()}
    try:
        connector = aiohttp.TCPConnector(ssl=False, force_close=True)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
            async with session.get(url, headers=headers, allow_redirects=False) as response:
                if 200 <= response.status < 400:
                    return Outcome(True)
                return Outcome(False, f"HTTP probe failed with statuscode: {response.status}")
    except (aiohttp.ClientError, OSError) as error:
        return Outcome(False, f'Get "{url}": {_why(error)}')


async def _tcp(action: Object, target: Target) -> Outcome:
    host, port = action.get("host") or target.address, _port(action["port"], target)
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return Outcome(False, f"dial tcp {host}:{port}: {_why(error)}")
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Outcome(True)


def _why(error: Exception) -> str:
    """The system's message: those of asyncio and aiohttp repeat the address and omit "connection refused"."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number and number > 0 else str(error)


def _port(port: int | str, target: Target) -> int:
    return port if isinstance(port, int) else target.ports.get(port, 0)


class Counter:
    """Counts consecutive successes and failures against a probe's thresholds. No I/O, no clock."""

    def __init__(self, probe: Object, *, initially: bool) -> None:
        self._needed = {True: probe.get("successThreshold", 1), False: probe.get("failureThreshold", 3)}
        self._row = (initially, 0)

    def count(self, *, ok: bool) -> bool:
        """True if this outcome reaches the threshold and changes the state."""
        self._row = (ok, self._row[1] + 1 if self._row[0] == ok else 1)
        return bool(self._row[1] >= self._needed[ok])


async def keep_probing(
    probe: Object,
    *,
    initially: bool,
    ask: Callable[[float], Awaitable[Outcome]],
    on_change: Callable[[bool], None],
    on_failure: Callable[[str], None],
) -> None:
    """``on_change(ok)`` is called when a threshold is reached, ``on_failure`` for every single failure."""
    counter = Counter(probe, initially=initially)
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    while True:
        outcome = await ask(float(probe.get("timeoutSeconds", 1)))
        if not outcome.ok:
            on_failure(outcome.message)
        if counter.count(ok=outcome.ok):
            on_change(outcome.ok)
        await asyncio.sleep(probe.get("periodSeconds", 10))
