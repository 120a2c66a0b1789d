"""``trainmaster down``: stops the cluster of ``trainmaster up``."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import click

from trainmaster.cli.up import STATE
from trainmaster.core.errors import BadConfig

STOP_TIMEOUT = 120.0
"""Seconds that ``up`` may take to stop its parts, one after the other, and the processes of its pods."""
_POLL = 0.05


@click.command()
@STATE
@click.option("--purge", is_flag=True, help="Also remove the state: all objects and logs.")
def down(state: Path | None, purge: bool) -> None:
    """Stop the local cluster and its pods.

    \b
    Example:
      trainmaster down
      trainmaster down --state /tmp/lab --purge
    """
    from trainmaster.client.leftover import GRACE, end_leftovers
    from trainmaster.local.node.process import running_shims
    from trainmaster.local.state import default_folder, is_state, open_state

    folder = (state or default_folder()).absolute()
    if not is_state(folder):
        raise BadConfig(f"{folder} is not a state folder: no cluster was started there; give --state DIR")
    click.echo("stopped" if _stop(folder) else "nothing was running")
    with open_state(folder) as held:
        if left := running_shims(held.node):
            click.echo(f"ending {len(left)} remaining containers: they have {GRACE:g} s")
            asyncio.run(end_leftovers(held.node, grace=GRACE))
        if purge:
            held.purge()
            click.echo(f"removed {folder}")


def _stop(folder: Path) -> bool:
    """False if no process was running. The process that holds the lock is alive, so its pid is not reused."""
    from trainmaster.local.state import holder_of

    deadline = time.monotonic() + STOP_TIMEOUT
    signalled = 0
    while (pid := holder_of(folder)) is not None:
        if pid and pid != signalled:
            with contextlib.suppress(ProcessLookupError):  # the process has just ended
                os.kill(pid, signal.SIGTERM)
            signalled = pid
        if time.monotonic() > deadline:
            raise BadConfig(f"process {pid} did not stop within {STOP_TIMEOUT:g} s; end it with: kill -9 {pid}")
        time.sleep(_POLL)
    return bool(signalled)
