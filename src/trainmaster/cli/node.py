"""``trainmaster node``: this machine as a node of a cluster; pods become processes."""

import asyncio
import os
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import structlog

from trainmaster.cli.log import configure_logging
from trainmaster.cli.option import CONTEXT, KUBECONFIG, LOG_FORMAT
from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import Key
from trainmaster.settings import NODE

if TYPE_CHECKING:
    from trainmaster.kube.client import KubeCluster
    from trainmaster.kube.config import Config
    from trainmaster.local.node.account import Access
    from trainmaster.local.node.agent import NodeOptions

log = structlog.get_logger(__name__)

FILE = click.Path(path_type=Path)


@click.command()
@KUBECONFIG
@CONTEXT
@click.option("--name", default="", help="Name of the node; default this machine's.")
@click.option("--folder", type=FILE, help="What the node keeps: pods, logs; default under ~/.local/state.")
@click.option("--workdir", type=FILE, help="Where containers without workingDir start; default here.")
@click.option("--client-ca", type=FILE, help="CA of the certificate with which the API server asks for logs.")
@click.option(
    "--client-name",
    default=NODE.client_name,
    show_default=True,
    help="Common name of that certificate; others of the same CA are refused.",
)
@click.option(
    "--let-every-tenant-run-programs-here",
    "is_open",
    is_flag=True,
    help="Register without the taint: every pod of the cluster may become a process of your user.",
)
@click.option("--allow-root", is_flag=True, help="Run as root: every pod on this node is root on this machine.")
@LOG_FORMAT
@click.option("--v", "verbosity", type=int, default=0, show_default=True, help="4 and more logs every action and why.")
def node(
    kubeconfig: str,
    context: str,
    name: str,
    folder: Path | None,
    workdir: Path | None,
    client_ca: Path | None,
    client_name: str,
    is_open: bool,
    allow_root: bool,
    log_format: str,
    verbosity: int,
) -> None:
    """Run pods of a cluster as processes of this machine.

    They have the rights and the files of your user. The node has the taint trainmaster.dev/process-node: only pods that
    tolerate it by this key run here. Give the node a kubeconfig of its own, with the rights of a node: docs/node.md has
    the commands.

    \b
    Example:
      trainmaster node --kubeconfig laptop.kubeconfig --name laptop
    """
    configure_logging(log_format, verbosity)
    if os.geteuid() == 0 and not allow_root:
        raise BadConfig(
            "as root, every pod on this node would be root on this machine: start it as another user, or with "
            "--allow-root if that is what you want"
        )
    # Imported here: the HTTP stack takes longer to load than --help should take to answer.
    from trainmaster.local.node.agent import NodeOptions
    from trainmaster.local.state import default_folder
    from trainmaster.wiring.loop import run_loop

    name = name or socket.gethostname().lower()
    place = (folder or default_folder().with_name(f"trainmaster-node-{name}")).absolute()
    certificate, key = _certificate(place)
    options = NodeOptions(
        name=name,
        folder=place,
        workdir=(workdir or Path.cwd()).absolute(),
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        client_name=client_name,
        is_strict=True,
        is_tainted=not is_open,
    )
    if client_ca is None:
        log.warning("container logs cannot be read through the API server", hint="give its --client-ca")
    run_loop(_run(kubeconfig, context, options))


async def _run(kubeconfig: str, context: str, options: "NodeOptions") -> None:
    from trainmaster.kube.client import KubeCluster
    from trainmaster.kube.kubeconfig import load_config
    from trainmaster.local.node.agent import run_node

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    config = load_config(kubeconfig=kubeconfig, context=context)
    async with KubeCluster(config) as cluster:
        await run_node(cluster, options, stop, access=_access(config, cluster))
    log.info("stopped; containers run on, and the next start takes them over", folder=str(options.folder))


def _access(config: "Config", cluster: "KubeCluster") -> "Access | None":
    """Containers find the API server where we do. Without TLS they would not take it for one."""
    from trainmaster.local.node.account import Access
    from trainmaster.local.node.resource import SERVICE_ACCOUNT

    url = urlsplit(config.server)
    if url.scheme != "https" or not url.hostname:
        return None

    async def request(account: Key, body: bytes) -> bytes:
        return await cluster.ask(SERVICE_ACCOUNT, account, "token", body)

    return Access(url.hostname, url.port or 443, request)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Of the log endpoint: made once, for this folder."""
    from trainmaster.local.disk import write_whole
    from trainmaster.local.state import self_signed

    certificate, key = folder / "certificate.pem", folder / "key.pem"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not certificate.exists():  # it is written last: where it is, its key is, too
            made = self_signed(datetime.now(UTC))
            write_whole(key, made[1])
            write_whole(certificate, made[0])
    except OSError as error:
        raise BadConfig(f"the node cannot keep its state in {folder}: {error.strerror}; give --folder DIR") from error
    return certificate, key
