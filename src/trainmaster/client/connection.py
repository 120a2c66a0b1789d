"""The cluster that commands and the Python API use: a running local cluster, or one of a kubeconfig."""

import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trainmaster.core.errors import BadConfig

if TYPE_CHECKING:
    from trainmaster.kube.config import Config


class Place(msgspec.Struct, frozen=True):
    """What the options say about the cluster; empty values were not given."""

    kubeconfig: str = ""
    context: str = ""
    state: Path | None = None
    namespace: str = ""

    @property
    def options(self) -> str:
        """The options that name the cluster, as they are typed."""
        given = {"--kubeconfig": self.kubeconfig, "--context": self.context, "--state": self.state}
        return "".join(f" {name} {shlex.quote(str(value))}" for name, value in given.items() if value)


class Connection(msgspec.Struct, frozen=True):
    config: "Config"
    title: str
    """The cluster, for messages."""
    kubeconfig: str
    """That of the local cluster, which kubectl does not find by itself; empty for another cluster."""
    namespace: str
    """Where jobs without a namespace are."""
    is_narrow: bool
    """The namespace was given: jobs elsewhere are of no interest."""

    options: str = ""
    """What names the cluster on the command line; empty for the one that is found without options."""

    @property
    def is_local(self) -> bool:
        return bool(self.kubeconfig)

    def options_of(self, namespace: str) -> str:
        """What has to follow a command that is about a job of this namespace."""
        return f"{self.options} --namespace {namespace}" if namespace != self.config.namespace else self.options


def connect(place: Place) -> Connection:
    """A cluster that is named by an option, else the local cluster if it runs, else that of the kubeconfig."""
    is_named = bool(place.kubeconfig or place.context)
    if place.state and is_named:
        raise BadConfig("--state and --kubeconfig or --context name different clusters; remove one of them")
    local = None if is_named else running_cluster(place.state)
    if place.state and not local:
        folder = place.state
        raise BadConfig(f"no local cluster is running in {folder}; start it with `trainmaster up --state {folder}`")
    if not is_named and not local and not _has_kubeconfig():
        raise BadConfig(
            "there is no cluster: no local cluster is running, and there is no kubeconfig; "
            "start one with `trainmaster up`, or name one with --kubeconfig FILE"
        )
    return connection_of(place, local)


def connection_of(place: Place, local: Path | None) -> Connection:
    """To the local cluster with this kubeconfig, or else to the one that the options name."""
    from trainmaster.kube.kubeconfig import load_config

    config = load_config(kubeconfig=str(local or place.kubeconfig), context=place.context)
    local = local or _local_cluster_at(config.server, place.kubeconfig)
    return Connection(
        config=config,
        title="the local cluster" if local else f"the cluster of {config.source}",
        kubeconfig=str(local or ""),
        namespace=place.namespace or config.namespace,
        is_narrow=bool(place.namespace),
        options=place.options,
    )


def running_cluster(folder: Path | None) -> Path | None:
    """The kubeconfig of the local cluster with this state folder, or with the default one; None if none is running."""
    from trainmaster.local.state import State, default_folder, holder_of

    state = State((folder or default_folder()).absolute())
    return state.kubeconfig if holder_of(state.folder) is not None and state.kubeconfig.exists() else None


def _local_cluster_at(server: str, kubeconfig: str) -> Path | None:
    """The kubeconfig of the local cluster at this address, if it runs on this machine with the default state folder or
    with the one that a named kubeconfig is in; None for another cluster."""
    from trainmaster.kube.kubeconfig import kubeconfig_files, load_config
    from trainmaster.local.state import default_folder

    for folder in (default_folder(), *(file.resolve().parent for file in kubeconfig_files(kubeconfig))):
        local = running_cluster(folder)
        if local and load_config(kubeconfig=str(local)).server == server:
            return local
    return None


def _has_kubeconfig() -> bool:
    from trainmaster.kube.incluster import is_in_cluster

    return bool(os.environ.get("KUBECONFIG")) or is_in_cluster() or (Path.home() / ".kube" / "config").exists()


def now() -> datetime:
    return datetime.now(UTC)
