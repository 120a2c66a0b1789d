"""The ``Cluster`` port in memory: objects with versions and uids, a history to watch, and a script to go wrong by.

It knows as little of Kubernetes as the runtime asks for. ``before`` and ``after`` are awaited around the moment in
which a call takes effect: a hook may wait, and it may raise.
"""

import asyncio
import copy
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from trainmaster.core.errors import AlreadyExists, Conflict, NotFound
from trainmaster.core.ids import Key, Resource
from trainmaster.runtime.cluster import Written

Json = dict[str, Any]


class Call(NamedTuple):
    verb: str
    resource: Resource
    key: Key
    body: Json
    options: Json
    at: float


Hook = Callable[[Call], Awaitable[None]]
Step = bytes | float | Exception
"""Of a scripted watch: a line, seconds of silence, or the end by an error. After the last step the server closes."""


async def _pass(_: Call) -> None: ...


def raising(verb: str, *errors: Exception, name: str = "") -> Hook:
    """Answers the first calls of that verb (for objects of that name) with these errors, the rest as usual."""
    left = deque(errors)

    async def hook(call: Call) -> None:
        if left and call.verb == verb and name in ("", call.key.name):
            raise left.popleft()

    return hook


def waiting(verb: str, seconds: float) -> Hook:
    async def hook(call: Call) -> None:
        if call.verb == verb:
            await asyncio.sleep(seconds)

    return hook


class FakeCluster:
    def __init__(self, *objects: tuple[Resource, Json]) -> None:
        self.before: Hook = _pass
        self.after: Hook = _pass
        self.calls: list[Call] = []
        self.most_at_once = 0
        self.pages: deque[bytes | Exception] = deque()
        """Answers of the next lists; after them the objects."""
        self.watches: deque[Iterable[Step]] = deque()
        """The next watches; after them the history, then silence until something is written."""
        self.newest = 1_000_000
        """What ``version`` answers. Lower than a version that was seen: etcd was restored from a backup."""
        self.deletes_have_versions = True
        self._cut: Exception | None = None
        self._objects: dict[tuple[Resource, Key], Json] = {}
        self._at_once = 0
        self._history: list[tuple[Resource, int, bytes]] = []
        self._followers: list[asyncio.Future[None]] = []
        for resource, body in objects:
            self.put(resource, body)

    @property
    def _version(self) -> int:
        return 1000 + len(self._history)

    # --- what a test does and asks ---

    def line(self) -> "FakeCluster":
        """Another connection to the same objects, with hooks of its own."""
        return copy.copy(self)

    def put(self, resource: Resource, body: Json) -> Json:
        """Somebody else creates or changes an object."""
        key = Key(body["metadata"].get("namespace", "ml"), body["metadata"]["name"])
        old = self._objects.get((resource, key))
        meta = {"uid": f"uid-of-{key.name}", **body["metadata"]}
        return self._store(resource, key, {**body, "metadata": meta}, "MODIFIED" if old else "ADDED")

    def take(self, resource: Resource, key: Key) -> None:
        """Somebody else deletes an object."""
        self._store(resource, key, self._objects.pop((resource, key)), "DELETED")

    def put_raw(self, resource: Resource, body: bytes) -> None:
        """An object that cannot be a dict: lists and gets leave it out, watches show it."""
        version = self._version + 1
        stored = body.replace(b'"resourceVersion":"0"', b'"resourceVersion":"%d"' % version)
        self._tell(resource, version, b'{"type":"MODIFIED","object":' + stored + b"}")

    def cut(self, error: Exception) -> None:
        """All watches end by this error, and none begins any more."""
        self._cut = error
        self._wake()

    def find(self, resource: Resource, key: Key) -> Json | None:
        return self._objects.get((resource, key))

    def asked(self, verb: str, resource: Resource | None = None) -> list[Call]:
        return [call for call in self.calls if call.verb == verb and resource in (None, call.resource)]

    # --- the port ---

    async def get(self, resource: Resource, key: Key) -> bytes:
        async with self._call("get", resource, key):
            return msgspec.json.encode(self._existing(resource, key))

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
        async with self._call("list", resource, Key(namespace, ""), selector=selector, limit=limit, cursor=cursor):
            if self.pages:
                page = self.pages.popleft()
                if isinstance(page, Exception):
                    raise page
                return page
            items = [body for (found, _), body in self._objects.items() if found == resource]
            return msgspec.json.encode({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def version(self, resource: Resource, *, namespace: str = "", fields: str = "") -> int:
        async with self._call("version", resource, Key(namespace, "")):
            return self.newest

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        resource_version: str,
        timeout: float,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        since = resource_version
        async with self._call("watch", resource, Key(namespace, ""), selector=selector, since=since, timeout=timeout):
            if self._cut is not None:
                raise self._cut
        script = self.watches.popleft() if self.watches else None
        lines = self._follow(resource, int(since)) if script is None else _play(script)
        try:
            yield lines
        finally:
            await lines.aclose()

    async def create(self, resource: Resource, namespace: str, body: bytes) -> Written:
        given = msgspec.json.decode(body)
        key = Key(namespace, given["metadata"]["name"])
        async with self._call("create", resource, key, given):
            if (resource, key) in self._objects:
                raise AlreadyExists(f"{resource} {key.name!r} already exists", code=409, reason="AlreadyExists")
            given["metadata"] |= {"namespace": namespace, "uid": f"{key.name}-{self._version}"}
            stored = self._store(resource, key, given, "ADDED")
        return _written(stored)

    async def replace(self, resource: Resource, key: Key, body: bytes) -> Written:
        given = msgspec.json.decode(body)
        async with self._call("replace", resource, key, given):
            self._check(self._existing(resource, key), given["metadata"])
            given["metadata"] |= {"uid": self._existing(resource, key)["metadata"]["uid"]}
            stored = self._store(resource, key, given, "MODIFIED")
        return _written(stored)

    async def patch(
        self, resource: Resource, key: Key, patch: bytes, *, subresource: str = "", strict: bool = False
    ) -> Written:
        given = msgspec.json.decode(patch)
        async with self._call("patch", resource, key, given, subresource=subresource, strict=strict):
            old = self._existing(resource, key)
            self._check(old, {"resourceVersion": given.get("metadata", {}).get("resourceVersion")})
            new = _merged(old, given)
            stored = (
                old if new == old else self._store(resource, key, new, "MODIFIED")
            )  # as etcd: no change, no version
        return _written(stored)

    async def delete(self, resource: Resource, key: Key, *, uid: str, grace: int | None = None) -> Written:
        async with self._call("delete", resource, key, uid=uid, grace=grace):
            self._check(self._existing(resource, key), {"uid": uid})
            self.take(resource, key)
            version = self._version if self.deletes_have_versions else 0
        return Written(uid, version)

    # --- inside ---

    @asynccontextmanager
    async def _call(
        self, verb: str, resource: Resource, key: Key, body: Json | None = None, **options: Any
    ) -> AsyncIterator[None]:
        call = Call(verb, resource, key, body or {}, options, asyncio.get_running_loop().time())
        self.calls.append(call)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.before(call)
            yield
            await self.after(call)
        finally:
            self._at_once -= 1

    def _existing(self, resource: Resource, key: Key) -> Json:
        if found := self._objects.get((resource, key)):
            return found
        raise NotFound(f"{resource} {key.name!r} not found", code=404, reason="NotFound")

    def _check(self, found: Json, preconditions: Json) -> None:
        for field in ("uid", "resourceVersion"):
            if (preconditions.get(field) or found["metadata"][field]) != found["metadata"][field]:
                raise Conflict(f"Precondition failed: {field}", code=409, reason="Conflict")

    def _store(self, resource: Resource, key: Key, body: Json, change: str) -> Json:
        version = self._version + 1
        stored: Json = {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
        if change != "DELETED":
            self._objects[resource, key] = stored
        self._tell(resource, version, msgspec.json.encode({"type": change, "object": stored}))
        return stored

    def _tell(self, resource: Resource, version: int, line: bytes) -> None:
        self._history.append((resource, version, line))
        self._wake()

    def _wake(self) -> None:
        for follower in self._followers:
            if not follower.done():
                follower.set_result(None)
        self._followers.clear()

    async def _follow(self, resource: Resource, version: int) -> AsyncGenerator[bytes, None]:
        told = 0
        while True:
            for changed, at, line in self._history[told:]:
                told += 1
                if changed == resource and at > version:
                    yield line
            if told == len(self._history):
                self._followers.append(news := asyncio.get_running_loop().create_future())
                await news
                if self._cut is not None:
                    raise self._cut


async def _play(script: Iterable[Step]) -> AsyncGenerator[bytes, None]:
    for step in script:
        match step:
            case bytes():
                yield step
            case float():
                await asyncio.sleep(step)
            case Exception():
                raise step


def _written(stored: Json) -> Written:
    return Written(stored["metadata"]["uid"], int(stored["metadata"]["resourceVersion"]))


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new
