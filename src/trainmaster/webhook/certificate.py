"""Certificates of the webhook: how they are made, how long they last, and what comes next. Time is an argument.

One authority signs, and all replicas serve one certificate of it. A new authority comes in three steps, so that the
API server trusts whatever any replica serves: it is trusted beside the old one, then it signs what is served, then
the old one is forgotten. ``advanced`` is the next step; ``keeper`` says when it may be taken.
"""

import base64
import binascii
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainmaster.core.errors import BadConfig

AUTHORITY_LIFE = timedelta(days=3650)
SERVING_LIFE = timedelta(days=90)
CLOCK_SLACK = timedelta(days=1)
"""A certificate is valid from before it was made: the clock of an API server may be behind ours."""

_FORMER = 3
"""Most authorities that are trusted beside the one that signs."""

Hosts = frozenset[str]
"""DNS names and IP addresses."""


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, which nothing ever prints."""

    certificate: x509.Certificate
    secret: bytes

    def __repr__(self) -> str:
        return f"Pair({self.certificate.subject.rfc4514_string()}, until {self.certificate.not_valid_after_utc})"


class Material(msgspec.Struct, frozen=True):
    """All that the replicas share."""

    authority: Pair
    """The one that signs."""
    former: tuple[x509.Certificate, ...]
    """Those that are still trusted, because what is served may be theirs."""
    serving: Pair

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        return (self.authority.certificate, *self.former)

    @property
    def is_switched(self) -> bool:
        """What is served was signed by the authority that signs now."""
        return is_issued_by(self.serving.certificate, self.authority.certificate)


# --- the next step -----------------------------------------------------------------------------


def first_material(hosts: Hosts, now: datetime) -> Material:
    authority = new_authority(now)
    return Material(authority, (), issued(authority, hosts, now))


def with_new_authority(material: Material, now: datetime) -> Material:
    """The served certificate stays until the new authority is trusted, and its signer stays trusted."""
    former = [old for old in material.trusted if is_valid(old, now)]
    former.sort(key=lambda old: not is_issued_by(material.serving.certificate, old))
    return Material(new_authority(now), tuple(former[:_FORMER]), material.serving)


def advanced(material: Material, hosts: Hosts, now: datetime, *, is_trusted: bool, is_spread: bool) -> Material:
    """The material after its next step, or as it is. ``is_trusted``: the API server has known the signing authority
    long enough; ``is_spread``: every replica has what is served."""
    if is_due(material.authority.certificate, now):
        material = with_new_authority(material, now)
        is_trusted = False
    if _wants_serving(material, hosts, now, is_trusted=is_trusted):
        names = hosts_of(material.serving.certificate) | hosts if is_valid(material.serving.certificate, now) else hosts
        return msgspec.structs.replace(material, serving=issued(material.authority, names, now))
    if material.former and material.is_switched and is_spread:
        return msgspec.structs.replace(material, former=())
    return material


def _wants_serving(material: Material, hosts: Hosts, now: datetime, *, is_trusted: bool) -> bool:
    serving = material.serving.certificate
    if not is_valid(serving, now) or not any(is_issued_by(serving, each) for each in material.trusted):
        return True  # no client trusts it: replacing it breaks nothing
    if not material.is_switched:
        return is_trusted
    return is_due(serving, now) or not hosts <= hosts_of(serving)


# --- judging -----------------------------------------------------------------------------------


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Two thirds of its life are over, or a clock was wrong when it was made."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return not start <= now < start + (end - start) * 2 / 3


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def hosts_of(certificate: x509.Certificate) -> Hosts:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return frozenset({*names.get_values_for_type(x509.DNSName), *addresses})


# --- making ------------------------------------------------------------------------------------


def new_authority(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # A unique name: two trusted authorities must not be confused.
    name = _name(f"trainmaster webhook CA {serial:x}"[:64])
    builder = _builder(name, name, key, key.public_key(), serial, now, AUTHORITY_LIFE)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate, _pem_of(key))


def issued(authority: Pair, hosts: Hosts, now: datetime) -> Pair:
    """A certificate for these names, with a new key."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = _loaded(authority.secret)
    issuer = authority.certificate.subject
    names = x509.SubjectAlternativeName([_san(host) for host in sorted(hosts)])
    serial = x509.random_serial_number()
    subject = _name("trainmaster webhook")
    certificate = (
        _builder(subject, issuer, key, signer.public_key(), serial, now, SERVING_LIFE)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Pair(certificate, _pem_of(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePublicKey,
    serial: int,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), serial)
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


# --- in a Secret -------------------------------------------------------------------------------

Data = Mapping[str, str]
"""Of a Secret: base64 by key."""


def data_of(material: Material) -> dict[str, str]:
    files = {
        "ca.crt": pem_of(material.trusted),
        "ca.key": material.authority.secret,
        "tls.crt": pem_of([material.serving.certificate]),
        "tls.key": material.serving.secret,
    }
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def material_in(data: Data) -> Material:
    """Raises ``BadConfig`` when it is not what ``data_of`` wrote."""
    try:
        files = {name: base64.b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
        authorities = x509.load_pem_x509_certificates(files["ca.crt"])
        serving = x509.load_pem_x509_certificate(files["tls.crt"])
        keys = {name: _loaded(files[name]) for name in ("ca.key", "tls.key")}
    except KeyError as missing:
        raise BadConfig(f"it has no {missing.args[0]}") from None
    except (ValueError, TypeError, binascii.Error):
        # Without the cause: it may quote what it could not read.
        raise BadConfig("it holds something else than PEM certificates and their keys") from None
    signing = [each for each in authorities if each.public_key() == keys["ca.key"].public_key()]
    if not signing or serving.public_key() != keys["tls.key"].public_key():
        raise BadConfig("a key in it belongs to another certificate")
    former = tuple(each for each in authorities if each != signing[0])
    return Material(Pair(signing[0], files["ca.key"]), former, Pair(serving, files["tls.key"]))


def pem_of(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def certificates_in(pem: bytes) -> Sequence[x509.Certificate]:
    """All that can be read; nothing where there is nothing."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return ()


def _loaded(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not an EC key")
    return key


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
