import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.kube.certificate import Authority, encrypted
from tests.webhook.build import DAY, NOW
from tests.webhook.handshake import listening, shown
from trainmaster.core.errors import BadConfig
from trainmaster.webhook.certificate import Pair, first_material, pem_of
from trainmaster.webhook.served import Served

HOSTS = frozenset({"127.0.0.1"})


def a_pair() -> Pair:
    return first_material(HOSTS, NOW).serving


def load(served: Served, pair: Pair) -> None:
    served.load(pem_of([pair.certificate]), pair.secret)


async def test_new_handshakes_get_what_was_loaded_last() -> None:
    served, first, second = Served(), a_pair(), a_pair()
    async with listening(served.context) as port:
        load(served, first)
        assert await shown(port) == first.certificate
        load(served, second)
        assert await shown(port) == second.certificate
        assert await shown(port, "webhook.system.svc") == second.certificate


async def test_nothing_is_served_before_something_was_loaded() -> None:
    async with listening(Served().context) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shown(port)


def _encrypted(pair: Pair) -> tuple[bytes, bytes]:
    return pem_of([pair.certificate]), encrypted(pair.secret)


def _rsa_key() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


@pytest.mark.parametrize(
    ("chain", "key"),
    [
        pytest.param(b"", b"", id="empty"),
        pytest.param(b"garbage", b"garbage", id="garbage"),
        pytest.param(pem_of([a_pair().certificate]), b"garbage", id="no key"),
        pytest.param(pem_of([a_pair().certificate]), a_pair().secret, id="another's key"),
        pytest.param(pem_of([a_pair().certificate]), _rsa_key(), id="another kind of key"),
        pytest.param(*_encrypted(a_pair()), id="an encrypted key"),
    ],
)
async def test_what_cannot_be_served_is_told_and_the_one_before_stays(chain: bytes, key: bytes) -> None:
    served, good = Served(), a_pair()
    load(served, good)

    with pytest.raises(BadConfig):
        served.load(chain, key)

    async with listening(served.context) as port:
        assert await shown(port) == good.certificate
    assert served.leaf == good.certificate


async def test_a_chain_is_told_by_its_leaf() -> None:
    authority = Authority("somebody else")
    certificate, key = authority.issue("webhook")
    served = Served()
    served.load(certificate + authority.pem, key)

    async with listening(served.context) as port:
        assert await shown(port) == served.leaf


def a_client(folder: Path, of: Authority | None, version: ssl.TLSVersion) -> ssl.SSLContext:
    """Trusts everything; has a certificate of this authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    if of is not None:
        certificate, key = of.issue("kube-apiserver")
        (folder / "client.pem").write_bytes(certificate + key)
        context.load_cert_chain(folder / "client.pem")
    return context


async def is_served(port: int, client: ssl.SSLContext) -> bool:
    """With TLS 1.3 a client hears of the refusal when it reads."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        said = await reader.read()
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return False
    return said == b"hello"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda v: v.name)
async def test_only_clients_of_the_authority_are_served_also_after_a_new_certificate(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    own, other = Authority("clients"), Authority("clients")
    served = Served(client_ca=own.pem)

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=served.context)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        for _ in range(2):
            load(served, a_pair())
            clients = [a_client(tmp_path, authority, version) for authority in (own, other, None)]
            assert [await is_served(port, client) for client in clients] == [True, False, False]


@pytest.mark.parametrize("authority", [b"garbage", b"\xff"])
def test_an_authority_that_cannot_be_read_is_told(authority: bytes) -> None:
    with pytest.raises(BadConfig, match="the authority of clients is not PEM"):
        Served(client_ca=authority)


def test_trouble_is_a_certificate_that_is_missing_or_not_of_today() -> None:
    served = Served()
    assert served.trouble(NOW) == "there is no certificate yet"
    load(served, a_pair())

    assert served.trouble(NOW) == ""
    for later in (-2 * DAY, 90 * DAY):
        assert served.trouble(NOW + later) == (
            "the certificate is valid from 2026-11-14 12:00 to 2027-02-13 12:00 UTC, not now"
        )
