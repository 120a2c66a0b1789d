"""Finds the kubeconfig files, selects the context and converts it to a ``config.Config``.

The rules are client-go's. ``kubefile`` reads the files; without any file, ``incluster`` is used.
"""

import base64
import binascii
import os
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from trainmaster.core.errors import BadConfig
from trainmaster.kube.address import server_url
from trainmaster.kube.config import Config, Material, Plugin, Tls, User
from trainmaster.kube.incluster import SERVICE_ACCOUNT, in_cluster_config, is_in_cluster
from trainmaster.kube.kubefile import Entry, FileCluster, FileContext, FileExec, FileUser, Merged, merged
from trainmaster.kube.master import SOURCE as MASTER
from trainmaster.kube.proxy import checked_proxy, proxy_from

T = TypeVar("T")

_PLUGIN_APIS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"


def load_config(
    *, kubeconfig: str = "", context: str = "", master: str = "", service_account: Path = SERVICE_ACCOUNT
) -> Config:
    """The API server by options and environment, in this order: ``kubeconfig``; ``master``
    alone, without credentials; $KUBECONFIG; the cluster that we run in; ~/.kube/config.

    ``master`` with ``kubeconfig`` or ``context`` replaces only the server's address.
    """
    if not kubeconfig and not context and master:
        server = server_url(master, tls=False, where=MASTER)
        return Config(server=server, source=MASTER, proxy=proxy_from(os.environ, server))
    files = kubeconfig_files(kubeconfig)
    home = Path.home() / ".kube" / "config"
    if not files and not context and is_in_cluster():
        return in_cluster_config(service_account)
    if not files and home.exists():
        files = [home]
    if not files:
        raise BadConfig(
            "no API server to talk to: no --kubeconfig, no $KUBECONFIG, not inside a cluster, "
            f"and no {home}; give one of them"
        )
    return _chosen(merged(files), context, master)


def kubeconfig_files(kubeconfig: str) -> list[Path]:
    """This file, or those of $KUBECONFIG, as far as they exist. It is an error if none of the named files exists."""
    if kubeconfig:
        named = [Path(kubeconfig)]
        where = "--kubeconfig"
    else:
        named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part.strip()]
        where = "$KUBECONFIG"
    existing = [path for path in named if path.exists()]
    if named and not existing:
        missing = ", ".join(str(path) for path in named)
        raise BadConfig(f"{where}: {missing} does not exist; check the path")
    return existing


def _chosen(files: Merged, context: str, master: str) -> Config:
    entry = _context(files, context)
    chosen = entry.value
    cluster = _referred(files.clusters, entry, "cluster", chosen.cluster)
    user = _referred(files.users, entry, "user", chosen.user) if chosen.user else None
    tls = _tls(cluster, master)
    server = _server(cluster, user, master)
    proxy = cluster.value.proxy_url
    if proxy:
        proxy = checked_proxy(proxy, f"{_where(cluster, 'cluster')}: proxy-url")
    return Config(
        server=server,
        source=f"{entry.file}, context {entry.name}",
        namespace=chosen.namespace or "default",
        tls=tls,
        user=_user(user, cluster, server, tls) if user else User(),
        proxy=proxy or proxy_from(os.environ, server),
    )


def _context(files: Merged, context: str) -> Entry[FileContext]:
    name = context or files.current_context
    known = ", ".join(sorted(files.contexts)) or "none"
    if not name:
        raise BadConfig(f"kubeconfig: no current-context is set; choose one with --context (there are: {known})")
    if name not in files.contexts:
        raise BadConfig(f"kubeconfig: context {name!r} does not exist; choose another one (there are: {known})")
    return files.contexts[name]


def _referred(entries: dict[str, Entry[T]], context: Entry[FileContext], what: str, name: str) -> Entry[T]:
    if name not in entries:
        raise BadConfig(
            f"kubeconfig {context.file}: context {context.name!r} names {what} {name!r}, which is not defined; "
            f"add it under {what}s or choose another context"
        )
    return entries[name]


def _where(entry: Entry[Any], what: str) -> str:
    return f"kubeconfig {entry.file}: {what} {entry.name!r}"


def _server(cluster: Entry[FileCluster], user: Entry[FileUser] | None, master: str) -> str:
    where = MASTER if master else _where(cluster, "cluster")
    server = master or cluster.value.server
    if not server:
        raise BadConfig(f"{where} has no server; add server: https://host:port")
    value = cluster.value
    has_ca = bool(value.certificate_authority or value.certificate_authority_data)
    has_certificate = user is not None and bool(user.value.client_certificate or user.value.client_certificate_data)
    return server_url(server, tls=has_ca or has_certificate or value.insecure_skip_tls_verify, where=where)


def _tls(cluster: Entry[FileCluster], master: str) -> Tls:
    value = cluster.value
    where = _where(cluster, "cluster")
    ca = _material(
        f"{where}: certificate-authority", cluster, value.certificate_authority, value.certificate_authority_data
    )
    if ca and value.insecure_skip_tls_verify:
        raise BadConfig(f"{where} has both a certificate-authority and insecure-skip-tls-verify; remove one")
    # The TLS server name belongs to the address in the file.
    name = "" if master else value.tls_server_name
    return Tls(ca=ca, insecure=value.insecure_skip_tls_verify, server_name=name)


def _material(what: str, entry: Entry[Any], path: str, encoded: str) -> Material | None:
    """Inline data takes precedence over a file, as documented. A file is read once here, so that errors show early."""
    if encoded:
        try:
            return Material(what, base64.b64decode("".join(encoded.split()), validate=True))
        except (binascii.Error, ValueError):
            raise BadConfig(f"{what}-data is not base64; encode the PEM file with base64") from None
    if not path:
        return None
    material = Material(what, path=entry.path(path))
    material.read()
    return material


def _user(entry: Entry[FileUser], cluster: Entry[FileCluster], server: str, tls: Tls) -> User:
    value = entry.value
    where = _where(entry, "user")
    has_token = bool(value.token or value.token_file)
    if value.auth_provider is not None and not has_token:
        raise BadConfig(f"{where} uses an auth-provider, which Kubernetes removed; use exec or a token")
    if has_token and (value.username or value.password):
        raise BadConfig(f"{where} has a token and a password; remove one")
    certificate = _material(
        f"{where}: client-certificate", entry, value.client_certificate, value.client_certificate_data
    )
    key = _material(f"{where}: client-key", entry, value.client_key, value.client_key_data)
    if (certificate is None) != (key is None):
        raise BadConfig(f"{where} has only one of client-certificate and client-key; add the other one")
    return User(
        token=_token(where, entry),
        basic=f"{value.username}:{value.password}" if value.username or value.password else "",
        certificate=certificate,
        key=key,
        plugin=_plugin(where, entry, value.exec, cluster.value, server, tls) if value.exec else None,
        impersonate=_impersonation(where, value),
    )


def _token(where: str, entry: Entry[FileUser]) -> Material | None:
    value = entry.value
    if not value.token and not value.token_file:
        return None
    path = entry.path(value.token_file) if value.token_file else None
    token = Material(f"{where}: token", value.token.strip().encode(), path)
    token.read()
    return token


def _impersonation(where: str, value: FileUser) -> tuple[tuple[str, str], ...]:
    headers = [("Impersonate-Group", group) for group in value.impersonate_groups]
    headers += [
        (f"Impersonate-Extra-{quote(name.lower(), safe='')}", text)
        for name, texts in value.impersonate_extra.items()
        for text in texts
    ]
    if value.impersonate_uid:
        headers.append(("Impersonate-Uid", value.impersonate_uid))
    if headers and not value.impersonate:
        raise BadConfig(f"{where} impersonates groups but no user; add as")
    if value.impersonate:
        headers.append(("Impersonate-User", value.impersonate))
    return tuple(headers)


def _plugin(where: str, entry: Entry[FileUser], spec: FileExec, cluster: FileCluster, server: str, tls: Tls) -> Plugin:
    if not spec.command:
        raise BadConfig(f"{where}: exec has no command; name the credential plug-in")
    if spec.api_version not in _PLUGIN_APIS:
        known = " or ".join(_PLUGIN_APIS)
        raise BadConfig(f"{where}: exec has apiVersion {spec.api_version!r}; it must be {known}, update the plug-in")
    is_path = os.sep in spec.command
    return Plugin(
        api_version=spec.api_version,
        command=str(entry.path(spec.command)) if is_path else spec.command,
        args=tuple(spec.args),
        env=tuple((variable.name, variable.value) for variable in spec.env),
        hint=spec.install_hint,
        cluster=_cluster_info(cluster, server, tls) if spec.provide_cluster_info else None,
    )


def _cluster_info(cluster: FileCluster, server: str, tls: Tls) -> dict[str, Any]:
    ca = base64.b64encode(tls.ca.read()).decode() if tls.ca else ""
    config = [e.extension for e in cluster.extensions if e.name == _PLUGIN_EXTENSION]
    info: dict[str, Any] = {
        "server": server,
        "tls-server-name": tls.server_name,
        "insecure-skip-tls-verify": tls.insecure,
        "certificate-authority-data": ca,
        "proxy-url": cluster.proxy_url,
        "config": config[0] if config else None,
    }
    return {name: value for name, value in info.items() if value}
