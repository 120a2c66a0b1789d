"""URLs of the Kubernetes API."""

import re
from urllib.parse import quote, urlencode

from yarl import URL

from trainmaster.core.errors import BadConfig, Invalid
from trainmaster.core.ids import Key, Resource

# Leader election itself writes leases; events are safe_cause.
_UNGATED = re.compile(r"/apis/coordination\.k8s\.io/|/api/v1/namespaces/[^/]+/events(/|$)")


def server_url(server: str, *, tls: bool, where: str) -> str:
    """The base URL. Without a scheme it is http, or https if there is TLS material, as in client-go."""
    text = server if "://" in server else f"{'https' if tls else 'http'}://{server}"
    try:
        url = URL(text)
        usable = url.scheme in ("http", "https") and bool(url.host) and bool(url.port)
    except ValueError:
        usable = False
    if not usable:
        raise BadConfig(f"{where}: the server is not an http or https URL; write https://host:port")
    if url.user is not None or url.password is not None:
        raise BadConfig(f"{where}: the server's URL holds a user or password; put them under users")
    return str(url.with_query(None).with_fragment(None)).rstrip("/")


def is_gated(path: str) -> bool:
    """Whether a write to this path needs leadership."""
    return _UNGATED.search(path) is None


MOST_PREFIXES = 10_000
"""Upper limit of cached prefixes: requests to di-server may name any number of namespaces."""


class Addresses:
    """URLs under one server. Prefixes are cached: building and parsing a URL costs as much as encoding a pod."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._prefixes: dict[tuple[Resource, str], str] = {}
        self._creates: dict[tuple[Resource, str], URL] = {}

    def collection(self, resource: Resource, namespace: str, query: dict[str, str]) -> URL:
        prefix = self._prefix(resource, namespace)
        return URL(f"{prefix}?{urlencode(query, quote_via=quote)}" if query else prefix, encoded=True)

    def create(self, resource: Resource, namespace: str) -> URL:
        url = self._creates.get((resource, namespace))
        if url is None:
            url = self.collection(resource, namespace, {"fieldManager": "trainmaster"})
            self._creates[resource, namespace] = url
        return url

    def item(self, resource: Resource, key: Key, suffix: str = "") -> URL:
        """One object; ``suffix`` follows its name: a subresource, a query."""
        return URL(f"{self._prefix(resource, key.namespace)}/{_segment(key.name)}{suffix}", encoded=True)

    def _prefix(self, resource: Resource, namespace: str) -> str:
        prefix = self._prefixes.get((resource, namespace))
        if prefix is None:
            root = "apis" if resource.group else "api"
            inside = f"/namespaces/{_segment(namespace)}" if namespace else ""
            prefix = f"{self._server}/{root}/{resource.api_version}{inside}/{resource.plural}"
            if len(self._prefixes) >= MOST_PREFIXES:
                self._prefixes.clear()  # prefixes in use are added again by the next call
                self._creates.clear()
            self._prefixes[resource, namespace] = prefix
        return prefix


def _segment(name: str) -> str:
    # An empty name or a dot would address the collection or its parent: a DELETE would delete all objects.
    if name in ("", ".", ".."):
        raise Invalid(f"{name!r} cannot be the name of an object", reason="Invalid")
    return quote(name, safe="")
