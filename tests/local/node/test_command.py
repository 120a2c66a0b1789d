"""``trainmaster node``: its errors at the start, and the files that it creates."""

import os
import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainmaster.cli.main import cli
from trainmaster.cli.node import _certificate
from trainmaster.core.errors import BadConfig


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)


def test_root_must_be_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    result = CliRunner().invoke(cli, ["node", "--folder", str(tmp_path / "state")])

    assert isinstance(result.exception, BadConfig)
    assert str(result.exception) == (
        "as root, every pod on this node would be root on this machine: start it as another user, or with --allow-root "
        "if that is what you want"
    )
    assert not (tmp_path / "state").exists()


def test_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = CliRunner().invoke(cli, ["node", "--allow-root", "--folder", str(tmp_path / "file" / "state")])

    assert isinstance(result.exception, BadConfig)
    assert str(result.exception) == (
        f"the node cannot keep its state in {tmp_path}/file/state: Not a directory; give --folder DIR"
    )


def test_missing_kubeconfig_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "none"

    result = CliRunner().invoke(
        cli, ["node", "--allow-root", "--folder", str(tmp_path / "state"), "--kubeconfig", str(missing)]
    )

    assert isinstance(result.exception, BadConfig)
    assert str(missing) in str(result.exception)


def test_certificate_is_created_once_and_is_private(tmp_path: Path) -> None:
    first = _certificate(tmp_path / "state")
    content = first[0].read_bytes()

    assert _certificate(tmp_path / "state") == first
    assert first[0].read_bytes() == content
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "state", *first)] == [0o700, 0o600, 0o600]
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*first)
