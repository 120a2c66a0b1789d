import base64

from tests.webhook.build import NOW, Json
from trainmaster.webhook.bundle import trusted_by, with_bundle
from trainmaster.webhook.certificate import new_authority, pem_of

OLD, NEW = new_authority(NOW).certificate, new_authority(NOW).certificate


def an_entry(*trusted: object, **fields: object) -> Json:
    bundle = base64.b64encode(pem_of(trusted)).decode()  # type: ignore[arg-type]
    return {"name": "v.kb.io", "clientConfig": {"url": "https://x", "caBundle": bundle}, **fields}


def test_trusted_is_what_every_entry_trusts() -> None:
    assert trusted_by([an_entry(OLD, NEW), an_entry(NEW)]) == {NEW}


def test_a_configuration_without_entries_trusts_nobody() -> None:
    assert trusted_by([]) == frozenset()


def test_garbage_trusts_nobody() -> None:
    for bundle in ("%%%", "", None, base64.b64encode(b"garbage").decode()):
        assert trusted_by([{"name": "v", "clientConfig": {"caBundle": bundle}}]) == frozenset()


def test_the_bundle_is_written_into_every_entry_and_nothing_else_is_changed() -> None:
    written = with_bundle([an_entry(OLD, timeoutSeconds=5), {"name": "w", "clientConfig": {}}], [NEW, OLD])

    assert written is not None
    assert trusted_by(written) == {OLD, NEW}
    assert (written[0]["timeoutSeconds"], written[0]["clientConfig"]["url"]) == (5, "https://x")


def test_nothing_is_written_when_it_is_there_in_whatever_order() -> None:
    assert with_bundle([an_entry(OLD, NEW)], [NEW, OLD]) is None


def test_what_is_trusted_no_longer_is_removed() -> None:
    written = with_bundle([an_entry(OLD, NEW)], [NEW])

    assert written is not None
    assert trusted_by(written) == {NEW}
