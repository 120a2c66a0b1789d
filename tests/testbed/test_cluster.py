"""The real cluster, as far as it can be held to its word without root: what it asks for, and what it writes."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from testbed import build as testbed_build
from testbed.cluster import build, config, network
from testbed.cluster.__main__ import main
from testbed.cluster.daemon import Daemon
from testbed.cluster.network import Place


def test_a_user_who_is_not_root_is_told_so() -> None:
    with pytest.raises(build.NotPossible, match="needs root"):
        build.require([], uid=1000, platform="linux")


def test_missing_packages_are_named_with_the_command_that_installs_them() -> None:
    with pytest.raises(build.NotPossible, match="apt-get install --no-install-recommends conntrack runc"):
        build.require(["conntrack", "runc"], uid=0, platform="linux")
    build.require([], uid=0, platform="linux")


def test_a_system_without_namespaces_is_refused() -> None:
    with pytest.raises(build.NotPossible, match="this is darwin"):
        build.require([], uid=0, platform="darwin")


def test_on_an_empty_path_every_package_of_a_command_is_missing(tmp_path: Path) -> None:
    assert {"runc", "iproute2", "nftables", "conntrack", "util-linux"} <= set(build.lacking(str(tmp_path)))


def test_every_binary_of_a_node_has_its_module_here_and_kubernetes_is_that_of_the_control_plane() -> None:
    site = build.site()
    assert all((site.modules / binary.module / "go.mod").is_file() for binary in site.binaries)
    assert f"k8s.io/kubernetes {testbed_build.KUBERNETES}\n" in (site.modules / "kubernetes" / "go.mod").read_text()
    assert f"containerd/v2 {build.CONTAINERD}\n" in (site.modules / "containerd" / "go.mod").read_text()


def test_the_binaries_of_nodes_are_apart_from_those_of_the_control_plane() -> None:
    assert testbed_build.folder(build.site()).parent != testbed_build.folder().parent


def test_nodes_have_addresses_of_their_own_in_ranges_that_do_not_overlap() -> None:
    places = [Place(number) for number in (1, 2, 3)]
    assert len({place.address for place in places} | {place.pods for place in places}) == 6
    ranges = (network.LAN, network.PODS, network.SERVICES)
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one is not other)


def test_the_configuration_of_containerd_is_toml_and_pins_the_sandbox() -> None:
    read = tomllib.loads(config.containerd(Path("/c/cni"), "/usr/sbin/runc"))
    images, runtime = (read["plugins"][f"io.containerd.cri.v1.{name}"] for name in ("images", "runtime"))

    assert images["pinned_images"]["sandbox"] == config.PAUSE_IMAGE
    assert runtime["cni"]["conf_dir"] == "/c/cni"
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/usr/sbin/runc"


def test_without_a_cluster_a_command_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert [main(["status"]), main(["kill", "node3"])] == [1, 1]
    said = capsys.readouterr().err.splitlines()
    assert said == ["cluster: no cluster is up: make cluster starts one"] * 2


def test_a_daemon_is_found_by_another_process_and_killed_by_its_pid(tmp_path: Path) -> None:
    Daemon(tmp_path, "sleeper").start(["sleep", "600"])
    ask = "import sys, pathlib, testbed.cluster.daemon as d; print(d.Daemon(pathlib.Path(sys.argv[1]), 'sleeper').pid)"
    seen = subprocess.run([sys.executable, "-c", ask, tmp_path], capture_output=True, text=True, check=True).stdout

    daemon = Daemon(tmp_path, "sleeper")
    assert seen.strip() == str(daemon.pid)
    daemon.kill()
    assert str(daemon.pid) == "None"
    daemon.kill()  # twice is once


def test_a_pid_that_was_given_to_another_process_is_not_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (tmp_path / "old.pid").write_text(f"{stranger.pid} 1")
        daemon = Daemon(tmp_path, "old")

        assert daemon.pid is None
        daemon.kill()
        assert stranger.poll() is None
        stranger.kill()
