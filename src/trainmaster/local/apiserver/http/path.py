"""Parses URL paths of resources."""

from typing import NamedTuple
from urllib.parse import unquote


class Address(NamedTuple):
    """The parts of a path. Whether the resource is served has not been checked."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def address_of(raw_path: str) -> Address | None:
    """The resource of a path, or None for other paths (/version, /openapi/v2, /apis/GROUP, …)."""
    parts = [unquote(part) for part in raw_path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if not all(rest):
        return None
    return _located(group, version, rest)


def _located(group: str, version: str, rest: list[str]) -> Address | None:
    namespace = ""
    # /namespaces/NAME and its subresources address the namespace itself.
    if rest[0] == "namespaces" and len(rest) > 2 and not (not group and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        # A subresource with a path of its own, such as proxy: the path is that of the proxied server.
        rest = rest[:3]
    plural, name, subresource = (*rest, "", "")[:3]
    return Address(group, version, plural, namespace, name, subresource)
