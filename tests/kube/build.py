"""Builders for the tests of kube."""

import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

from trainmaster.kube.config import Config, Material, Tls, User

Json = dict[str, Any]


class Clock:
    """A clock that the test advances."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def a_config(
    server: str, *, token: str | Material = "", tls: Tls | None = None, proxy: str = "", **user: Any
) -> Config:
    if token:
        user["token"] = Material("token", data=token.encode()) if isinstance(token, str) else token
    return Config(server=server, source="test", tls=tls or Tls(), user=User(**user), proxy=proxy)


def a_kubeconfig(*, cluster: Json | None = None, user: Json | None = None, context: Json | None = None) -> Json:
    """One context "dev" of one cluster "c" and one user "u"."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "clusters": [{"name": "c", "cluster": {"server": "https://api.test:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", **(context or {})}}],
    }


def write_yaml(path: Path, content: Json) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def a_script(path: Path, source: str) -> Path:
    """An executable Python program, such as an exec plug-in."""
    # -I -S: it starts in half the time.
    path.write_text(f"#!{sys.executable} -IS\n{textwrap.dedent(source)}")
    path.chmod(0o755)
    return path
