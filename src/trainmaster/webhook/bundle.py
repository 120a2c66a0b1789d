"""The caBundle of a webhook configuration: by what the API server trusts us."""

import base64
from collections.abc import Iterable
from typing import Any

from cryptography import x509

from trainmaster.webhook.certificate import certificates_in, pem_of

Webhooks = list[dict[str, Any]]


def trusted_by(webhooks: Webhooks) -> frozenset[x509.Certificate]:
    """The certificates that every entry trusts."""
    bundles = [frozenset(_certificates(webhook)) for webhook in webhooks]
    return frozenset.intersection(*bundles) if bundles else frozenset()


def with_bundle(webhooks: Webhooks, trusted: Iterable[x509.Certificate]) -> Webhooks | None:
    """The entries with exactly these trusted; None when they are already."""
    wanted = list(trusted)
    if all(set(_certificates(webhook)) == set(wanted) for webhook in webhooks):
        return None
    bundle = base64.b64encode(pem_of(wanted)).decode()
    return [{**entry, "clientConfig": {**entry.get("clientConfig", {}), "caBundle": bundle}} for entry in webhooks]


def _certificates(webhook: dict[str, Any]) -> list[x509.Certificate]:
    bundle = webhook.get("clientConfig", {}).get("caBundle") or ""
    try:
        return list(certificates_in(base64.b64decode(bundle)))
    except ValueError:
        return []
