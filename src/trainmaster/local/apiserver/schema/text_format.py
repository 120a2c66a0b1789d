"""The ``format`` words of a string schema that kube-apiserver checks; the rest it ignores, and so do we."""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from ipaddress import IPv4Address, IPv6Address, ip_network

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DURATION = re.compile(r"[+-]?((([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+|0)")
_SPAN = re.compile(
    r"[0-9]+\s*(d|day|days|h|hr|hour|hours|m|min|minute|minutes|s|sec|second|seconds|ms|milli|us|micro|ns|nano|w|week|weeks)"
)
_HOSTNAME = re.compile(r"(?=.{1,255}\Z)([A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?\.?)+")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:\S+|/\S*)")
_MAC = re.compile(r"([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}(\.[0-9A-Fa-f]{4}){2})")
_SHORT_NAME = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONG_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _written(*patterns: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: any(each.fullmatch(text) for each in patterns)


def _is_time(text: str) -> bool:
    return bool(_DATE_TIME.fullmatch(text)) and _parses(date.fromisoformat)(text[:10])


_FORMATS: dict[str, Callable[[str], bool]] = {
    "datetime": _is_time,
    "date": _parses(date.fromisoformat),
    "duration": _written(_DURATION, _SPAN),
    "byte": _parses(lambda text: b64decode(text, validate=True)),
    "uuid": _written(_UUID),
    "ipv4": _parses(IPv4Address),
    "ipv6": _parses(IPv6Address),
    "cidr": _parses(lambda text: ip_network(text, strict=False)),
    "mac": _written(_MAC),
    "hostname": _written(_HOSTNAME),
    "email": _written(_EMAIL),
    "uri": _written(_URI),
    "k8sshortname": _written(_SHORT_NAME),
    "k8slongname": _written(_LONG_NAME),
}


def is_known(word: str) -> bool:
    """Is this a format that is checked?"""
    return word.replace("-", "") in _FORMATS


def is_format(word: str, text: str) -> bool:
    """Is a text of this format? A format that is not checked accepts every text."""
    check = _FORMATS.get(word.replace("-", ""))
    return check is None or check(text)
