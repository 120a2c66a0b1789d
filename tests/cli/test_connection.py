"""Which cluster the commands for people use."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from trainmaster.client.connection import Place, connect
from trainmaster.core.errors import BadConfig
from trainmaster.local.state import State, default_folder, open_state


def kubeconfig(path: Path, server: str, namespace: str = "ml") -> Path:
    config = {
        "contexts": [{"name": name, "context": {"cluster": name, "namespace": namespace}} for name in ("one", "two")],
        "clusters": [{"name": name, "cluster": {"server": f"{server}/{name}"}} for name in ("one", "two")],
        "current-context": "one",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(config))
    return path


@pytest.fixture
def local() -> Iterator[State]:
    """The default local cluster, as if it ran."""
    with open_state(default_folder()) as state:
        state.write_kubeconfig("https://127.0.0.1:1234", "default")
        yield state


def test_a_running_local_cluster_is_used_before_the_kubeconfig(local: State, tmp_path: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "http://far")
    connection = connect(Place())

    assert (connection.config.server, connection.is_local) == ("https://127.0.0.1:1234", True)
    assert (connection.namespace, connection.is_narrow) == ("default", False)


def test_a_local_cluster_that_has_stopped_is_not_used(tmp_path: Path) -> None:
    with open_state(default_folder()) as state:
        state.write_kubeconfig("https://127.0.0.1:1234", "default")
    kubeconfig(tmp_path / ".kube" / "config", "http://far")

    assert connect(Place()).config.server == "http://far/one"


@pytest.mark.parametrize("by", ["--context", "--kubeconfig"])
def test_a_named_cluster_is_used_before_the_local_one(local: State, tmp_path: Path, by: str) -> None:
    home = kubeconfig(tmp_path / ".kube" / "config", "http://home")
    place = Place(context="two") if by == "--context" else Place(kubeconfig=str(home))
    connection = connect(place)

    assert connection.config.server == ("http://home/two" if by == "--context" else "http://home/one")
    assert (connection.is_local, connection.namespace) == (False, "ml")
    assert connection.title.startswith(f"the cluster of {home}, context ")


@pytest.mark.parametrize("folder", ["", "lab"])
def test_a_named_cluster_may_be_the_local_one(tmp_path: Path, folder: str) -> None:
    with open_state(tmp_path / folder if folder else default_folder()) as state:
        state.write_kubeconfig("https://127.0.0.1:99", "default")
        connection = connect(Place(kubeconfig=str(state.kubeconfig), context="trainmaster"))

    assert (connection.is_local, connection.title) == (True, "the local cluster")
    assert connection.options == f" --kubeconfig {state.kubeconfig} --context trainmaster"


def test_a_cluster_of_another_machine_at_the_address_of_an_earlier_local_one_is_not_local(tmp_path: Path) -> None:
    with open_state(default_folder()) as state:
        state.write_kubeconfig("https://127.0.0.1:99", "default")

    assert not connect(Place(kubeconfig=str(state.kubeconfig))).is_local


def test_a_given_namespace_narrows_what_is_shown(local: State) -> None:
    connection = connect(Place(namespace="rl"))

    assert (connection.namespace, connection.is_narrow) == ("rl", True)


def test_a_state_folder_names_a_local_cluster(local: State, tmp_path: Path) -> None:
    with open_state(tmp_path / "lab") as lab:
        lab.write_kubeconfig("https://127.0.0.1:99", "default")

        assert connect(Place(state=tmp_path / "lab")).config.server == "https://127.0.0.1:99"


@pytest.mark.parametrize(
    ("place", "error"),
    [
        pytest.param(
            Place(),
            "there is no cluster: no local cluster is running, and there is no kubeconfig; "
            "start one with `trainmaster up`, or name one with --kubeconfig FILE",
            id="nothing",
        ),
        pytest.param(
            Place(state=Path("lab")),
            "no local cluster is running in lab; start it with `trainmaster up --state lab`",
            id="stopped",
        ),
        pytest.param(
            Place(state=Path("lab"), context="far"),
            "--state and --kubeconfig or --context name different clusters; remove one of them",
            id="both",
        ),
    ],
)
def test_no_cluster_is_told_in_a_sentence(place: Place, error: str) -> None:
    with pytest.raises(BadConfig) as raised:
        connect(place)

    assert str(raised.value) == error


def test_the_options_that_a_command_needs_are_known(local: State, tmp_path: Path) -> None:
    home = kubeconfig(tmp_path / ".kube" / "config", "http://home")

    assert connect(Place()).options_of("default") == ""
    assert connect(Place(namespace="rl")).options_of("rl") == " --namespace rl"
    assert connect(Place(context="two")).options_of("ml") == " --context two"
    assert connect(Place(kubeconfig=str(home))).options_of("rl") == f" --kubeconfig {home} --namespace rl"
