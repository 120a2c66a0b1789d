"""The port between the runtime and whatever serves the Kubernetes API.

``kube`` implements it over HTTP. The runtime gives and gets JSON as bytes: it decodes only what it
needs (see ``core.view``), and the transport decodes nothing but errors. Every call raises the
exceptions of ``core.errors`` and ends within a bounded time.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from trainmaster.core.ids import Key, Resource


class Written(NamedTuple):
    """What a write answered. ``resource_version`` is 0 when the answer carried none (some deletes). ``warnings`` are
    what the API server and its admission say of the object."""

    uid: str
    resource_version: int
    warnings: tuple[str, ...] = ()


class Cluster(Protocol):
    async def get(self, resource: Resource, key: Key) -> bytes: ...

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        limit: int = 0,
        cursor: str = "",
        max_bytes: int = 0,
    ) -> bytes:
        """One page, as the server wrote it; ``cursor`` is the ``metadata.continue`` of the page before.
        ``selector`` is about labels, ``fields`` about fields. ``max_bytes``, unless it is 0, is the longest page that
        is read: a longer one raises ``TooLarge``."""
        ...

    async def version(self, resource: Resource, *, namespace: str = "", fields: str = "") -> int:
        """The version that a list would have now. It is cheap."""
        ...

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        resource_version: str,
        timeout: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Lines of a watch with bookmarks. The server ends it after ``timeout`` seconds; a silent
        connection is noticed and raised as ``Unreachable``."""
        ...

    async def create(self, resource: Resource, namespace: str, body: bytes) -> Written: ...

    async def replace(self, resource: Resource, key: Key, body: bytes) -> Written: ...

    async def patch(
        self, resource: Resource, key: Key, patch: bytes, *, subresource: str = "", strict: bool = False
    ) -> Written:
        """A JSON merge patch. ``metadata.resourceVersion`` in it is a precondition. ``metadata.uid`` is none: in a
        patch of the status the API server ignores it, and a version belongs to one incarnation anyway. A field that
        the resource does not have is dropped, or raised as ``UnknownField`` if the patch is ``strict``."""
        ...

    async def delete(self, resource: Resource, key: Key, *, uid: str, grace: int | None = None) -> Written:
        """Delete only this incarnation; ``grace`` None leaves the object's own grace period."""
        ...
