import base64
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tests.webhook.build import DAY, NOW
from trainmaster.core.errors import BadConfig
from trainmaster.webhook.certificate import (
    CLOCK_SLACK,
    Material,
    advanced,
    data_of,
    first_material,
    hosts_of,
    is_due,
    is_issued_by,
    is_valid,
    material_in,
    new_authority,
    with_new_authority,
)

HOSTS = frozenset({"webhook.system.svc", "127.0.0.1"})


@pytest.fixture(scope="module")
def material() -> Material:
    return first_material(HOSTS, NOW)


def step(material: Material, days: float = 0, *, is_trusted: bool = True, is_spread: bool = True) -> Material:
    return advanced(material, HOSTS, NOW + days * DAY, is_trusted=is_trusted, is_spread=is_spread)


# --- what is made ---


def test_an_authority_lasts_ten_years_and_a_certificate_ninety_days(material: Material) -> None:
    authority, serving = material.authority.certificate, material.serving.certificate

    assert authority.not_valid_after_utc == NOW + 3650 * DAY
    assert serving.not_valid_after_utc == NOW + 90 * DAY
    assert authority.not_valid_before_utc == serving.not_valid_before_utc == NOW - CLOCK_SLACK


def test_keys_are_of_the_curve_p256(material: Material) -> None:
    for pair in (material.authority, material.serving):
        key = pair.certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"


def test_the_certificate_is_for_its_hosts_and_of_its_authority(material: Material) -> None:
    assert hosts_of(material.serving.certificate) == HOSTS
    assert material.is_switched
    assert not is_issued_by(material.serving.certificate, new_authority(NOW).certificate)


def test_no_two_authorities_have_one_name() -> None:
    assert new_authority(NOW).certificate.subject != new_authority(NOW).certificate.subject


def test_a_key_is_never_shown(material: Material) -> None:
    assert "PRIVATE" not in repr(material)
    assert "webhook CA" in repr(material)


# --- when the next one is due ---


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        pytest.param(-1.5, True, id="made by a clock that was ahead"),
        pytest.param(0, False, id="new"),
        pytest.param(59, False, id="before two thirds"),
        pytest.param(60, True, id="after two thirds"),
        pytest.param(91, True, id="over"),
    ],
)
def test_a_certificate_is_due_after_two_thirds_of_its_life(material: Material, days: float, expected: bool) -> None:
    assert is_due(material.serving.certificate, NOW + days * DAY) is expected


@pytest.mark.parametrize(("days", "expected"), [(-1.1, False), (-1, True), (89.9, True), (90, False)])
def test_a_certificate_is_valid_within_its_time(material: Material, days: float, expected: bool) -> None:
    assert is_valid(material.serving.certificate, NOW + days * DAY) is expected


# --- steps ---


def test_nothing_happens_while_nothing_is_due(material: Material) -> None:
    assert step(material, 30) is material


def test_a_certificate_that_is_due_is_issued_anew_by_the_same_authority(material: Material) -> None:
    new = step(material, 61, is_trusted=False, is_spread=False)

    assert new.trusted == material.trusted
    assert new.serving.certificate != material.serving.certificate
    assert new.is_switched
    assert not is_due(new.serving.certificate, NOW + 61 * DAY)


def test_a_clock_that_was_wrong_is_made_up_for(material: Material) -> None:
    """It was made by a clock ten years ahead."""
    new = step(material, -3650, is_trusted=False, is_spread=False)

    assert is_valid(new.authority.certificate, NOW - 3650 * DAY)
    assert is_valid(new.serving.certificate, NOW - 3650 * DAY)
    assert new.is_switched
    assert new.former == ()


def test_an_authority_comes_in_three_steps() -> None:
    days = 3650 * 2 / 3
    old = step(first_material(HOSTS, NOW), days - 10)  # what is served is new

    beside = step(old, days)
    assert beside.trusted == (beside.authority.certificate, old.authority.certificate)
    assert beside.serving == old.serving

    assert step(beside, days, is_trusted=False) is beside
    switched = step(beside, days)
    assert switched.is_switched
    assert switched.trusted == beside.trusted

    assert step(switched, days, is_spread=False) is switched
    alone = step(switched, days)
    assert alone.trusted == (beside.authority.certificate,)
    assert step(alone, days) is alone


def test_whoever_signed_what_is_served_stays_trusted_however_often_there_is_a_new_authority(material: Material) -> None:
    new = material
    for _ in range(10):
        new = with_new_authority(new, NOW)

    assert len(new.trusted) == 4
    assert material.authority.certificate in new.trusted
    assert new.serving == material.serving


def test_what_nobody_trusts_is_issued_anew_at_once(material: Material) -> None:
    foreign = Material(new_authority(NOW), (), material.serving)

    assert step(foreign, is_trusted=False).is_switched


def test_a_host_that_is_missing_is_added_and_those_of_others_stay(material: Material) -> None:
    new = advanced(material, frozenset({"other.svc"}), NOW, is_trusted=True, is_spread=True)

    assert hosts_of(new.serving.certificate) == HOSTS | {"other.svc"}
    assert step(new) is new


# --- in a Secret ---


def test_what_is_kept_in_a_secret_is_read_back(material: Material) -> None:
    for kept in (material, with_new_authority(material, NOW + timedelta(days=1))):
        assert material_in(data_of(kept)) == kept


def _encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"ca.crt": None}, "it has no ca.crt", id="missing"),
        pytest.param({"tls.crt": "%%%"}, "something else than PEM", id="no base64"),
        pytest.param({"tls.key": _encoded(b"secret words")}, "something else than PEM", id="no PEM"),
        pytest.param({"ca.crt": ""}, "something else than PEM", id="empty"),
        pytest.param({"ca.key": _encoded(new_authority(NOW).secret)}, "belongs to another", id="foreign CA key"),
        pytest.param({"tls.key": _encoded(new_authority(NOW).secret)}, "belongs to another", id="foreign key"),
    ],
)
def test_anything_else_in_it_is_told_without_showing_it(
    material: Material, change: dict[str, str | None], said: str
) -> None:
    data = {name: value for name, value in {**data_of(material), **change}.items() if value is not None}

    with pytest.raises(BadConfig, match=said) as raised:
        material_in(data)
    assert raised.value.__cause__ is None
    assert "secret words" not in str(raised.value)


def test_hosts_of_a_certificate_without_any_are_none() -> None:
    assert hosts_of(new_authority(NOW).certificate) == frozenset()


def test_a_certificate_is_no_authority(material: Material) -> None:
    basic = material.serving.certificate.extensions.get_extension_for_class(x509.BasicConstraints)

    assert (basic.critical, basic.value.ca) == (True, False)
