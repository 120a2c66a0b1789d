"""trainmaster.kube.proxy, and requests that really go through one."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.kube.build import a_config
from tests.kube.certificate import Authority
from tests.kube.conftest import Connect, Run
from tests.kube.serve import POD_JSON, ApiServer, Proxy
from trainmaster.core.errors import BadConfig, Unreachable
from trainmaster.core.ids import POD, Key
from trainmaster.kube.config import Material, Tls
from trainmaster.kube.proxy import checked_proxy, proxy_from

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxied"),
    [
        pytest.param("https://api.test:6443", "", True, id="no exception"),
        pytest.param("https://localhost:6443", "", False, id="localhost never"),
        pytest.param("https://127.0.0.1:6443", "", False, id="loopback never"),
        pytest.param("https://127.1.2.3:6443", "", False, id="all of 127/8 never"),
        pytest.param("https://[::1]:6443", "", False, id="IPv6 loopback never"),
        pytest.param("https://api.test:6443", "*", False, id="star"),
        pytest.param("https://api.test:6443", "API.test", False, id="host in any case"),
        pytest.param("https://a.api.test", "api.test", False, id="domain covers subdomains"),
        pytest.param("https://xapi.test", "api.test", True, id="but not other words"),
        pytest.param("https://a.api.test", ".api.test", False, id="leading dot covers subdomains"),
        pytest.param("https://api.test", ".api.test", True, id="and only those"),
        pytest.param("https://a.api.test", "*.api.test", False, id="leading star"),
        pytest.param("https://api.test:6443", "api.test:6443", False, id="this port"),
        pytest.param("https://api.test:6443", "api.test:443", True, id="another port"),
        pytest.param("https://api.test", "api.test:443", False, id="default port"),
        pytest.param("https://10.1.2.3:6443", "other, 10.0.0.0/8", False, id="CIDR"),
        pytest.param("https://11.1.2.3:6443", "10.0.0.0/8", True, id="outside the CIDR"),
        pytest.param("https://api.test", "10.0.0.0/8", True, id="name against CIDR"),
        pytest.param("https://10.1.2.3", "10.1.2.3", False, id="address"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3:6443", False, id="address and port"),
        pytest.param("https://[fd00::1]", "fd00::1", False, id="IPv6 address"),
        pytest.param("https://[fd00::1]:6443", "[fd00::1]:6443", False, id="IPv6 address and port"),
        pytest.param("https://api.test", "10.0.0.0/99,,nonsense/x", True, id="malformed rules are skipped"),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(server: str, no_proxy: str, proxied: bool) -> None:
    assert bool(proxy_from({**PROXY, "NO_PROXY": no_proxy}, server)) is proxied


@pytest.mark.parametrize(
    ("environ", "server", "expected"),
    [
        pytest.param({"https_proxy": "http://p:1"}, "https://a", "http://p:1", id="lower case"),
        pytest.param({"HTTP_PROXY": "http://p:1"}, "https://a", "", id="the other scheme's"),
        pytest.param({"HTTP_PROXY": "http://p:1"}, "http://a", "http://p:1", id="http"),
        pytest.param({"HTTPS_PROXY": "p:3128"}, "https://a", "http://p:3128", id="no scheme is http"),
        pytest.param({}, "https://a", "", id="none"),
    ],
)
def test_proxy_is_chosen_by_the_servers_scheme(environ: dict[str, str], server: str, expected: str) -> None:
    assert proxy_from(environ, server) == expected


@pytest.mark.parametrize("text", ["socks5://me:hush@p:1080", "http://", "http://me:hush@p:port"])
def test_proxy_that_cannot_be_used_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(BadConfig, match="cluster 'c': proxy-url") as caught:
        checked_proxy(text, "cluster 'c': proxy-url")

    assert "hush" not in str(caught.value)


async def test_https_uses_a_tunnel_and_the_proxy_sees_only_its_own_password(
    tls_server: Callable[..., Awaitable[ApiServer]], run: Run[Any], connect: Connect, authority: Authority
) -> None:
    server = await tls_server()
    proxy = await run(Proxy(server.port))
    config = a_config(
        "https://api.test:6443",  # a name that only the proxy knows
        token="api-token",
        tls=Tls(ca=Material("ca", data=authority.pem)),
        proxy=f"http://me:hush@127.0.0.1:{proxy.port}",
    )
    cluster = await connect(config)

    assert await cluster.get(POD, Key("ml", "a")) == POD_JSON
    assert proxy.heads[0].startswith("CONNECT api.test:6443 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6aHVzaA==" in proxy.heads[0]
    assert "api-token" not in proxy.heads[0]
    assert server.seen[0].headers["Authorization"] == "Bearer api-token"
    assert "Proxy-Authorization" not in server.seen[0].headers


async def test_plain_http_uses_the_proxy_with_its_password(run: Run[Any], connect: Connect) -> None:
    proxy = await run(Proxy(0))
    cluster = await connect(a_config("http://api.test:8080", proxy=f"http://me:hush@127.0.0.1:{proxy.port}"))

    assert await cluster.get(POD, Key("ml", "a")) == POD_JSON
    assert proxy.heads[0].startswith("GET http://api.test:8080/api/v1/namespaces/ml/pods/a HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6aHVzaA==" in proxy.heads[0]


async def test_proxy_that_refuses_is_named_as_the_reason(run: Run[Any], connect: Connect) -> None:
    proxy = await run(Proxy(0, refuse=True))
    cluster = await connect(a_config("https://api.test", proxy=f"http://me:hush@127.0.0.1:{proxy.port}"))

    with pytest.raises(Unreachable, match="get pods ml/a: the proxy answered 407"):
        await cluster.get(POD, Key("ml", "a"))
