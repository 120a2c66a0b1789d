"""The options of commands that name a cluster."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trainmaster.cli.option import CONTEXT, KUBECONFIG
from trainmaster.cli.up import STATE
from trainmaster.client.connection import Place

NAMESPACE = click.option(
    "--namespace", "-n", default="", help="Namespace. Default: that of the kubeconfig's context; list shows all."
)


def takes_cluster(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that name a cluster. The function gets them as ``place``."""

    @functools.wraps(function)
    def command(*args: Any, kubeconfig: str, context: str, state: Path | None, namespace: str, **others: Any) -> None:
        function(*args, place=Place(kubeconfig, context, state, namespace), **others)

    for option in (STATE, NAMESPACE, CONTEXT, KUBECONFIG):
        command = option(command)
    return command
