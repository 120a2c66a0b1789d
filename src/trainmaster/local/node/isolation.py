"""Detects which isolation this system allows, once, by trying it in a process of its own."""

import asyncio
import os
import py_compile
import sys
from pathlib import Path

import msgspec

SHIM = Path(__file__).with_name("shim.py")
FALLBACK = Path(__file__).with_name("fallback")
"""A folder for PYTHONPATH that resolves pod names in Python programs, where a private /etc/hosts is not possible."""
FORCED = "TRAINMASTER_NO_NAMESPACES"
"""If set, no namespaces are used: for systems on which they work only partly, and for tests."""
PROBE_SECONDS = 20.0


class Isolation(msgspec.Struct, frozen=True):
    """``mode`` is mount (root), user (user namespaces) or empty; ``why`` is the reason for empty."""

    mode: str = ""
    why: str = ""


def shim_command(file: Path = SHIM) -> tuple[str, ...]:
    """Isolated mode and no site: the user's environment must not change or slow down the shim."""
    return (sys.executable, "-I", "-S", str(file))


def compiled_shim(folder: Path) -> tuple[str, ...]:
    """The command of a shim that is compiled once: Python would compile a script at each start."""
    file = folder / "shim.pyc"
    try:
        py_compile.compile(str(SHIM), cfile=str(file), doraise=True)
    except OSError:
        return shim_command()
    return shim_command(file)


async def probe_isolation() -> Isolation:
    if os.environ.get(FORCED):
        return Isolation("", f"{FORCED} is set")
    if sys.platform != "linux":
        return Isolation("", f"there are none on {sys.platform}")
    process = await asyncio.create_subprocess_exec(
        *shim_command(), "probe", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            out, _ = await process.communicate()
        return msgspec.json.decode(out, type=Isolation)
    except (TimeoutError, msgspec.DecodeError) as error:
        return Isolation("", f"the probe did not answer: {error}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
