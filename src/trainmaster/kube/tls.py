"""SSLContexts: the server's CA and our client certificate.

A rotated certificate gets a new context instead of a reload in place: aiohttp separates connections by their
context, so no request uses a connection that was opened with the old certificate.
"""

import ssl
import tempfile
from pathlib import Path

from trainmaster.core.errors import BadConfig
from trainmaster.kube.config import Tls


def ssl_context(tls: Tls, *, ca: bytes, certificate: bytes, key: bytes, source: str) -> ssl.SSLContext:
    """A context that trusts ``ca``, the content of ``tls.ca`` now, and presents our certificate, if any (all PEM)."""
    context = _trusting(tls, ca)
    # Since 3.13 Python is stricter than Go: CAs of many clusters have no authority key identifier, and a
    # server's own certificate may be the trusted one.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate or key:
        _show_certificate(context, certificate, key, source)
    return context


def _trusting(tls: Tls, ca: bytes) -> ssl.SSLContext:
    if tls.ca is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise BadConfig(f"{tls.ca.what}: holds no PEM certificate; it must be the cluster's CA") from error
    return context


def _show_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, source: str) -> None:
    # OpenSSL reads certificates only from files. The folder is private (0700) and removed at once.
    with tempfile.TemporaryDirectory(prefix="trainmaster-") as folder:
        pem = Path(folder, "client.pem")
        pem.write_bytes(certificate + b"\n" + key + b"\n")
        try:
            # Without a password argument OpenSSL would prompt on the terminal.
            context.load_cert_chain(pem, password="")
        except (ssl.SSLError, ValueError) as error:
            because = getattr(error, "reason", None) or "an unencrypted PEM certificate and its key are needed"
            raise BadConfig(
                f"client certificate of {source}: certificate and key do not work together ({because}); "
                "they must be one unencrypted PEM pair"
            ) from error
