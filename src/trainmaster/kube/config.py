"""The API server's address and our credentials: plain data.

``kubeconfig`` and ``incluster`` make a ``Config``; ``auth``, ``tls`` and ``client`` use it.
"""

from pathlib import Path
from typing import Any

import msgspec

from trainmaster.core.errors import BadConfig


class Redacted(msgspec.Struct, frozen=True):
    """Data that may contain secrets. Its repr hides the fields, so that logs and tracebacks cannot leak them."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Material(Redacted, frozen=True):
    """A token, certificate or key: inline, or in a file that may be rotated. ``what`` names it in errors."""

    what: str
    data: bytes = b""
    path: Path | None = None

    def read(self) -> bytes:
        """The current content of the file, or the inline data if the file cannot be read."""
        if self.path is None:
            return self.data
        try:
            content = self.path.read_bytes().strip()
        except OSError as error:
            if self.data:
                return self.data
            raise BadConfig(
                f"{self.what}: cannot read {self.path}: {error.strerror}; check the path and its permissions"
            ) from error
        if not content:
            raise BadConfig(f"{self.what}: {self.path} is empty; write it again or choose another user")
        return content


class Plugin(Redacted, frozen=True):
    """An exec credential plug-in; ``cluster`` is the cluster info that is passed to it if it requests that."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    hint: str = ""
    cluster: dict[str, Any] | None = None


class User(Redacted, frozen=True):
    """The client's identity. A token takes precedence over the plug-in, as in client-go; certificates are used beside
    either."""

    token: Material | None = None
    basic: str = ""
    certificate: Material | None = None
    key: Material | None = None
    plugin: Plugin | None = None
    impersonate: tuple[tuple[str, str], ...] = ()


class Tls(Redacted, frozen=True):
    """How the server's certificate is verified. Without ``ca`` the system's roots are trusted."""

    ca: Material | None = None
    insecure: bool = False
    server_name: str = ""


class Config(Redacted, frozen=True):
    """``server`` is an absolute URL without a trailing slash; ``source`` names the file or account of this config."""

    server: str
    source: str
    namespace: str = "default"
    pod_namespace: str = ""
    """Of the pod that we run in; empty outside of a cluster. A context of a kubeconfig says nothing about it."""
    tls: Tls = Tls()
    user: User = User()
    proxy: str = ""

    def __repr__(self) -> str:
        return f"<Config {self.server} from {self.source}>"
