"""di-server over TLS: a certificate from files, and the same answers."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from tests.diserver.bench import serving
from tests.kube.certificate import Authority
from trainmaster.cli.server import _certificate
from trainmaster.core.errors import BadConfig


@pytest.fixture
def authority() -> Authority:
    return Authority("cluster")


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> Path:
    certificate, key = authority.issue("di-server", names=("127.0.0.1",))
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    return tmp_path


async def test_a_job_is_served_over_tls(folder: Path, authority: Authority) -> None:
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    async with (
        _certificate(str(folder), asyncio.Event()) as tls,
        serving(tls=tls, trust=trust) as bench,
    ):
        bench.job()
        client = bench.client(bench.pod("cart-coordinator"))

        await client.start({"replicas": 1}, {})
        await bench.answered()
        found = await client.get()

        assert found is not None
        assert len(found["collectors"]) == 1


async def test_without_tls_nobody_is_answered(folder: Path) -> None:
    async with (
        _certificate(str(folder), asyncio.Event()) as tls,
        serving(tls=tls, trust=False) as bench,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(aiohttp.ClientError):
            await session.get(bench.url.replace("https", "http"))


async def test_plain_http_is_the_default() -> None:
    async with _certificate("", asyncio.Event()) as tls:
        assert tls is None


async def test_a_folder_without_a_certificate_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=f"--tls-cert-dir: {tmp_path}/tls.crt and tls.key: No such file"):
        async with _certificate(str(tmp_path), asyncio.Event()):
            pass
