"""What is served over TLS, exchanged while connections come and go."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from cryptography import x509
from prometheus_client import Gauge

from trainmaster.core.errors import BadConfig
from trainmaster.webhook import metrics
from trainmaster.webhook.certificate import certificates_in, is_valid


class Served:
    """``context`` is for the server; every new handshake is done with what was loaded last.

    Each chain gets a context of its own: one that a failed load has left half changed is never used, nor one that
    still holds an older certificate of another kind of key. With ``client_ca`` (PEM) only clients with a certificate of
    this authority are served. ``end`` shows when the certificate ends.
    """

    def __init__(self, end: Gauge = metrics.CERTIFICATE_END, *, client_ca: bytes = b"") -> None:
        self._end = end
        self._client_ca = client_ca
        self.leaf: x509.Certificate | None = None
        self.context = self._new_context()
        self.context.sni_callback = self._choose
        self._current: ssl.SSLContext | None = None

    def load(self, chain: bytes, key: bytes) -> None:
        """PEM; raises ``BadConfig``, and goes on with what it had."""
        found = certificates_in(chain)
        if not found:
            raise BadConfig("the certificate is not PEM")
        context = self._new_context()
        try:
            with _as_file(chain) as chain_file, _as_file(key) as key_file:
                # The password, because OpenSSL would ask a terminal for that of an encrypted key.
                context.load_cert_chain(chain_file, key_file, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BadConfig("certificate and key do not belong together, or one of them is broken") from error
        self._current, self.leaf = context, found[0]
        self._end.set(found[0].not_valid_after_utc.timestamp())

    def trouble(self, now: datetime) -> str:
        """Why clients will not trust the certificate; empty when they will."""
        if self.leaf is None:
            return "there is no certificate yet"
        if not is_valid(self.leaf, now):
            start, end = self.leaf.not_valid_before_utc, self.leaf.not_valid_after_utc
            return f"the certificate is valid from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, not now"
        return ""

    def _new_context(self) -> ssl.SSLContext:
        """A connection takes the demand for a certificate from the context that it begins with, and the authority from
        the one that it goes on with: all contexts have both."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._client_ca:
            try:
                context.load_verify_locations(cadata=self._client_ca.decode())
            except (ssl.SSLError, ValueError) as error:
                raise BadConfig("the authority of clients is not PEM") from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        if self._current is None:
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = self._current
        return None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """OpenSSL reads files alone. Where there can be one without a disk it is: containers have read-only ones, and a
    key should not touch any."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
        name = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, name = tempfile.mkstemp()  # 0600
    try:
        os.write(descriptor, content)
        yield name
    finally:
        os.close(descriptor)
        if not name.startswith("/proc/"):
            os.unlink(name)  # noqa: PTH108 – beside os.close it reads better
