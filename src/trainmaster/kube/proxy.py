"""Selects the proxy to the API server by Go's rules, which users of kubectl have configured.

aiohttp's own ``trust_env`` is not used: it needs a thread for every request, reads ``~/.netrc``,
does not support CIDRs in NO_PROXY, and sends loopback addresses through the proxy.
"""

import base64
import ipaddress
from collections.abc import Mapping

from yarl import URL

from trainmaster.core.errors import BadConfig

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def proxy_from(environ: Mapping[str, str], server: str) -> str:
    """The proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY choose for ``server``, or ""."""
    url = URL(server)
    name = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    proxy = _either_case(environ, name)
    if not proxy or _is_direct(url, _either_case(environ, "NO_PROXY")):
        return ""
    return checked_proxy(proxy, f"environment variable {name}")


def checked_proxy(text: str, where: str) -> str:
    """The URL of a proxy, with Go's default scheme. The text may contain a password, so errors do not quote it."""
    try:
        url = URL(text if "://" in text else f"http://{text}")
        usable = url.scheme in ("http", "https") and bool(url.host) and bool(url.port)
    except ValueError:
        usable = False
    if not usable:
        raise BadConfig(f"{where}: not the URL of an HTTP proxy; write http://host:port (socks5 is not supported)")
    return str(url)


def split_credentials(proxy: str) -> tuple[URL | None, str]:
    """The proxy without user and password, and its Proxy-Authorization; None and "" if there is none.

    aiohttp could take them from the URL, but it also keeps that URL in its exceptions.
    """
    if not proxy:
        return None, ""
    url = URL(proxy)
    if url.user is None:
        return url, ""
    credentials = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return url.with_user(None), f"Basic {credentials}"


def _either_case(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _is_direct(url: URL, no_proxy: str) -> bool:
    host = (url.host or "").lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    rules = (rule.strip().lower() for rule in no_proxy.split(","))
    return any(_matches(rule, host, url.port or 0, address) for rule in rules if rule)


def _matches(rule: str, host: str, port: int, address: _Address | None) -> bool:
    if rule == "*":
        return True
    if "/" in rule:
        return address is not None and _is_inside(address, rule)
    name, wanted_port = _split_port(rule)
    if wanted_port and wanted_port != str(port):
        return False
    if address is not None:
        return _address(name) == address
    domain = name.removeprefix("*")
    if domain.startswith("."):
        return host.endswith(domain)
    return host == domain or host.endswith(f".{domain}")


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _is_inside(address: _Address, cidr: str) -> bool:
    try:
        return address in ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False


def _split_port(rule: str) -> tuple[str, str]:
    if _address(rule) is not None:
        return rule, ""
    name, colon, port = rule.rpartition(":")
    return (name, port) if colon else (rule, "")
