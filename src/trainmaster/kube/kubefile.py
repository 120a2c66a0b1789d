"""Parses and merges kubeconfig files; ``kubeconfig`` interprets them.

Errors name the file and the position, and never a value: any value may be a secret.
"""

from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import yaml

from trainmaster.core.errors import BadConfig
from trainmaster.kube.config import Redacted

T = TypeVar("T")


class _Extension(Redacted, frozen=True):
    name: str
    extension: Any = None


class FileCluster(Redacted, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[_Extension] = []


class _Variable(Redacted, frozen=True):
    name: str
    value: str = ""


class FileExec(Redacted, frozen=True, rename="camel"):
    api_version: str = ""
    command: str = ""
    args: list[str] = []
    env: list[_Variable] = []
    install_hint: str = ""
    provide_cluster_info: bool = False


class FileUser(Redacted, frozen=True, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: FileExec | None = None
    auth_provider: Any = None
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] = msgspec.field(default=[], name="as-groups")
    impersonate_extra: dict[str, list[str]] = msgspec.field(default={}, name="as-user-extra")


class FileContext(Redacted, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(Redacted, frozen=True):
    name: str
    cluster: FileCluster = FileCluster()


class _NamedUser(Redacted, frozen=True):
    name: str
    user: FileUser = FileUser()


class _NamedContext(Redacted, frozen=True):
    name: str
    context: FileContext = FileContext()


class _File(Redacted, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []


class Entry(NamedTuple, Generic[T]):
    """One cluster, user or context, and its file: relative paths are relative to that file's folder."""

    file: Path
    name: str
    value: T

    def path(self, text: str) -> Path:
        return self.file.parent / text


class Merged:
    """All files as one. For each name, and for the current context, the first file that defines it is used."""

    def __init__(self) -> None:
        self.current_context = ""
        self.clusters: dict[str, Entry[FileCluster]] = {}
        self.users: dict[str, Entry[FileUser]] = {}
        self.contexts: dict[str, Entry[FileContext]] = {}

    def add(self, path: Path, file: _File) -> None:
        self.current_context = self.current_context or file.current_context
        _add(self.clusters, path, "clusters", [(c.name, c.cluster) for c in file.clusters])
        _add(self.users, path, "users", [(u.name, u.user) for u in file.users])
        _add(self.contexts, path, "contexts", [(c.name, c.context) for c in file.contexts])


def merged(files: list[Path]) -> Merged:
    """Merges the files in their order of precedence."""
    result = Merged()
    for path in dict.fromkeys(path.absolute() for path in files):
        result.add(path, _parsed(path))
    return result


def _parsed(path: Path) -> _File:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506 - either loader is a safe one
    except OSError as error:
        raise BadConfig(f"kubeconfig {path}: cannot be read: {error.strerror}; check its permissions") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        # Not chained: PyYAML quotes the line, and that line may be the token.
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise BadConfig(f"kubeconfig {path}: not valid YAML{line}; correct the file") from None
    try:
        return msgspec.convert(_without_nulls(data) or {}, _File)
    except msgspec.ValidationError as error:
        raise BadConfig(f"kubeconfig {path}: {error}; correct the file") from None


def _without_nulls(data: Any) -> Any:
    """Go reads null as "not set", and kubectl writes it."""
    match data:
        case dict():
            return {key: _without_nulls(value) for key, value in data.items() if value is not None}
        case list():
            return [_without_nulls(value) for value in data]
        case _:
            return data


def _add(known: dict[str, Entry[T]], path: Path, section: str, named: list[tuple[str, T]]) -> None:
    seen = set()
    for name, value in named:
        if name in seen:
            raise BadConfig(f"kubeconfig {path}: {section} has {name!r} twice; remove or rename one")
        seen.add(name)
        known.setdefault(name, Entry(path, name, value))
