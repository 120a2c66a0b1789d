"""Certificates from files, such as cert-manager's, read again when they change."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import structlog

from trainmaster.core.errors import BadConfig
from trainmaster.webhook.served import Served

log = structlog.get_logger(__name__)


class FolderKeeper:
    """``tls.crt`` and ``tls.key`` of one folder. Their issuer also writes the caBundle."""

    def __init__(self, folder: Path, served: Served, *, now: Callable[[], datetime], look: float = 10.0) -> None:
        self._folder = folder
        self._served = served
        self._now = now
        self._look = look
        self._seen: tuple[bytes, bytes] | None = None
        self._trouble = ""

    @property
    def trouble(self) -> str:
        return self._served.trouble(self._now()) if self._served.leaf else self._trouble

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._look)

    async def look(self) -> None:
        """Files that are read while they are exchanged may not fit together: the next look finds those that do."""
        try:
            found = await asyncio.to_thread(self._read)
            if found == self._seen:
                return
            self._served.load(*found)
        except (OSError, BadConfig) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            self._trouble = f"{self._folder}/tls.crt and tls.key: {reason}"
            log.warning("certificate not loaded; the one before stays", folder=str(self._folder), because=reason)
            return
        self._seen = found
        log.info("certificate loaded", folder=str(self._folder))

    def _read(self) -> tuple[bytes, bytes]:
        return (self._folder / "tls.crt").read_bytes(), (self._folder / "tls.key").read_bytes()
