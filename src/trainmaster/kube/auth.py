"""Credentials: the headers and the SSLContext of the next request.

Tokens and certificates in files are read again every minute and after a 401; exec plug-ins (``plugin``)
run again when their credential expires and after a 401. ``client`` checks before each request, which costs a
comparison of two floats.
"""

import asyncio
import base64
import math
import ssl
import time
from collections.abc import Callable
from typing import Protocol

from multidict import CIMultiDict

from trainmaster.core.errors import BadConfig
from trainmaster.kube.call import JSON, MERGE_PATCH
from trainmaster.kube.config import Config, Material, Plugin, Redacted, User
from trainmaster.kube.plugin import run_plugin
from trainmaster.kube.tls import ssl_context

_REREAD = 60.0


class Credential(Redacted, frozen=True):
    authorization: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires: float = math.inf


class Source(Protocol):
    """A source of credentials. A ``renewable`` one may return another credential next time, but not within
    ``pause`` seconds."""

    renewable: bool
    pause: float

    async def obtain(self) -> Credential: ...


class ConfiguredSource:
    """Credentials of the kubeconfig or the service account, inline or in files."""

    pause = 0.0

    def __init__(self, user: User, now: Callable[[], float]) -> None:
        parts = (user.token, user.certificate, user.key)
        self.renewable = any(part is not None and part.path is not None for part in parts)
        self._user = user
        self._now = now

    async def obtain(self) -> Credential:
        user = self._user
        return Credential(
            _authorization(user),
            user.certificate.read() if user.certificate else b"",
            user.key.read() if user.key else b"",
            self._now() + _REREAD if self.renewable else math.inf,
        )


class PluginSource:
    """Credentials of an exec plug-in; certificates in the kubeconfig are used beside its token."""

    renewable = True
    pause = 5.0

    def __init__(self, plugin: Plugin, configured: ConfiguredSource, timeout: float) -> None:
        self._plugin = plugin
        self._configured = configured
        self._timeout = timeout

    async def obtain(self) -> Credential:
        status = await run_plugin(self._plugin, self._timeout)
        configured = await self._configured.obtain()
        expiry = status.expiration_timestamp
        what = f"credential plug-in {self._plugin.command}"
        return Credential(
            _bearer(status.token, what) if status.token else configured.authorization,
            status.client_certificate_data.encode() or configured.certificate,
            status.client_key_data.encode() or configured.key,
            expiry.timestamp() if expiry else math.inf,
        )


class Auth:
    """Holds the current credential. ``generation`` grows with each change."""

    def __init__(self, config: Config, *, now: Callable[[], float] = time.time, plugin_timeout: float = 60.0) -> None:
        self.headers: dict[str, CIMultiDict[str]] = {}
        self.ssl: ssl.SSLContext | bool = True
        self.generation = 0
        self._config = config
        self._now = now
        self._source = _source(config.user, now, plugin_timeout)
        self._stale_at = -math.inf
        self._obtained_at = -math.inf
        self._credential: Credential | None = None
        self._tls: tuple[bytes, bytes, bytes] | None = None
        self._flight: asyncio.Task[None] | None = None

    def is_stale(self) -> bool:
        return self._now() >= self._stale_at

    async def fresh(self) -> None:
        """Obtains the credential if it is due. If a file cannot be read, the old credential is used until the server
        answers 401."""
        if not self.is_stale():
            return
        try:
            await self._obtain()
        except BadConfig:
            if self._credential is None:
                raise
            self._stale_at = self._now() + _REREAD

    async def renew(self, rejected: int) -> bool:
        """After a 401 for generation ``rejected``: returns True if there is another credential to try."""
        is_early = self._now() < self._obtained_at + self._source.pause
        if self.generation == rejected and self._source.renewable and not is_early:
            await self._obtain()
        return self.generation != rejected

    def redact(self, text: bytes) -> bytes:
        """Removes credentials from an answer: some servers echo request headers."""
        _, _, secret = (self._credential or Credential()).authorization.partition(" ")
        return text.replace(secret.encode(), b"***") if secret else text

    async def close(self) -> None:
        if self._flight is not None and not self._flight.done():
            self._flight.cancel()
            await asyncio.wait([self._flight])

    async def _obtain(self) -> None:
        # One at a time; all waiting callers share the result. Shielded: the timeout of the first caller must not
        # cancel the task for the others.
        if self._flight is None or self._flight.done():
            self._flight = asyncio.create_task(self._load())
            self._flight.add_done_callback(_retrieve)
        await asyncio.shield(self._flight)

    async def _load(self) -> None:
        credential = await self._source.obtain()
        ca = self._config.tls.ca
        tls = (ca.read() if ca else b"", credential.certificate, credential.key)
        if tls != self._tls and self._config.server.startswith("https:"):
            self.ssl = ssl_context(
                self._config.tls, ca=tls[0], certificate=tls[1], key=tls[2], source=self._config.source
            )
        old = self._credential
        if old is None or tls != self._tls or credential.authorization != old.authorization:
            self.generation += 1
            self.headers = {kind: self._headers(credential, kind) for kind in ("", JSON, MERGE_PATCH)}
        self._tls = tls
        self._credential = credential
        self._obtained_at = self._now()
        reread = self._obtained_at + _REREAD if ca and ca.path else math.inf
        self._stale_at = max(min(credential.expires, reread), self._obtained_at + self._source.pause)

    def _headers(self, credential: Credential, content_type: str) -> CIMultiDict[str]:
        headers = CIMultiDict(self._config.user.impersonate)
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        if content_type:
            headers["Content-Type"] = content_type
        return headers


def _source(user: User, now: Callable[[], float], plugin_timeout: float) -> Source:
    configured = ConfiguredSource(user, now)
    if user.plugin is None or user.token is not None:
        return configured
    return PluginSource(user.plugin, configured, plugin_timeout)


def _authorization(user: User) -> str:
    if user.token is not None:
        return _bearer(_text(user.token), user.token.what)
    if user.basic:
        return f"Basic {base64.b64encode(user.basic.encode()).decode()}"
    return ""


def _text(token: Material) -> str:
    return token.read().decode("ascii", "replace")


def _bearer(token: str, what: str) -> str:
    if not token.isascii() or not token.isprintable():
        raise BadConfig(f"{what}: the token has characters that no HTTP header can carry; write it again")
    return f"Bearer {token}"


def _retrieve(flight: asyncio.Task[None]) -> None:
    """Retrieves the exception: if every waiter was cancelled, asyncio would log it as never retrieved."""
    if not flight.cancelled():
        flight.exception()
