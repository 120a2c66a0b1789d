"""Runs the local cluster of ``trainmaster up`` until a signal."""

import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from trainmaster.cli.interrupt import Interrupts
from trainmaster.client.leftover import GRACE, end_leftovers
from trainmaster.local.node.process import running_shims
from trainmaster.local.node.worker import mark_stopped
from trainmaster.local.state import State, default_folder, open_state
from trainmaster.wiring.local import local_cluster, prepare
from trainmaster.wiring.loop import run_loop

log = structlog.get_logger(__name__)

Print = Callable[[str], object]


def run_until_signal(folder: Path, *, port: int, namespace: str, print_line: Print) -> None:
    with open_state(folder) as state:
        run_loop(_run(state, port, namespace, print_line))


async def _run(state: State, port: int, namespace: str, print_line: Print) -> None:
    interrupts = Interrupts()
    async with local_cluster(state, port=port, workdir=Path.cwd()) as local:
        if local.warning:
            log.warning(local.warning)
        await prepare(local, namespace)
        state.write_kubeconfig(local.url, namespace)
        print_line(_usage(state, local.url))
        await interrupts.first.wait()
        log.info("stopping")
    if left := running_shims(state.node):
        print_line(f"ending {len(left)} containers: they have {GRACE:g} s; press Ctrl-C again to kill them at once")
        mark_stopped(state.node)
        await end_leftovers(state.node, grace=GRACE, kill_now=interrupts.second)
    print_line("stopped; all objects are kept for the next `trainmaster up`")


def _option(state: State) -> str:
    """What names this cluster to other commands; empty for the default one."""
    return "" if state.folder == default_folder() else f" --state {state.folder}"


def _where(folder: Path, python: str | None) -> str:
    """Where programs run that do not say it themselves."""
    return f"Programs of manifests without workingDir run in {folder}; python3 is {python or 'not in PATH'}"


def _usage(state: State, url: str) -> str:
    return "\n".join(
        (
            f"The local cluster is up at {url}; Ctrl-C stops it. In another terminal:",
            "",
            f"  export KUBECONFIG={state.kubeconfig}",
            "  kubectl apply -f examples/aitrainingjob-ps.yaml",
            f"  trainmaster list{_option(state)}",
            "",
            _where(Path.cwd(), shutil.which("python3")),
        )
    )
