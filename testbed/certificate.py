"""A small certificate authority: enough for a control plane on loopback, and for webhooks in tests."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=2)


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


def signing_key(file: Path) -> Path:
    """Write a fresh private key (for service-account tokens) and answer its file."""
    _write_key(file, ec.generate_private_key(ec.SECP256R1()))
    return file


class Authority:
    """Signs server and client certificates; everything it makes is in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca_file = folder / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainmaster test bed")])
        basic = x509.BasicConstraints(ca=True, path_length=0)
        usage = _key_usage(signs_certificates=True)
        self._certificate = (
            self._builder(self._name, self._key)
            .add_extension(basic, critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file.write_bytes(self.ca_pem)

    @property
    def ca_pem(self) -> bytes:
        """The CA certificate; base64 of it is a caBundle."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def key_file(self) -> Path:
        """The authority's own key, for a program that signs in its place."""
        file = self.ca_file.with_name("ca.key")
        _write_key(file, self._key)
        return file

    def server(
        self,
        name: str = "server",
        *,
        addresses: Sequence[str] = ("127.0.0.1", "::1"),
        names: Sequence[str] = ("localhost",),
    ) -> Pair:
        """A certificate for a server, on loopback by default."""
        alternatives = x509.SubjectAlternativeName(
            [
                *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
                *(x509.DNSName(each) for each in names),
            ]
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        return self._issue(name, subject, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, *groups: str, name: str = "client") -> Pair:
        """A certificate that makes its bearer this user, in these groups."""
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        return self._issue(name, subject, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        # Python ≥ 3.13 refuses chains without key identifiers.
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(authority, critical=False)
        )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
