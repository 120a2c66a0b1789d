"""Loopback addresses: on Linux, every address of 127/8 is this machine.

A pod with a ``subdomain`` is known by a name of its own, and its peers may expect it at the same port as themselves, as
on a cluster. So it gets an address of its own. All other pods are at 127.0.0.1.
"""

import socket
from collections.abc import Iterator
from zlib import crc32

from trainmaster.local.node.pod import LOOPBACK, Pod

SERVERS, PODS = range(32, 64), range(64, 128)
"""The second byte of addresses, by their use. Distributions use addresses of 127.0/16 for themselves: 127.0.0.53,
127.0.1.1, and others."""
_LAST = range(1, 255)


def addresses(seconds: range, seed: str) -> Iterator[str]:
    """All addresses with one of these second bytes, beginning at a place that depends on the seed."""
    size = len(seconds) * 256 * len(_LAST)
    start = crc32(seed.encode())
    for step in range(size):
        rest, last = divmod((start + step) % size, len(_LAST))
        second, third = divmod(rest, 256)
        yield f"127.{seconds[second]}.{third}.{_LAST[last]}"


def why_single() -> str:
    """Why this system has only 127.0.0.1; empty if it has all of 127/8."""
    with socket.socket() as probe:
        try:
            probe.bind((next(addresses(PODS, "")), 0))
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""


class Addresses:
    """The addresses of the pods of a node. ``folder`` is that of the node: two nodes on one machine rarely use the same
    address. A pod that comes again under its name usually has its old address: its peers may still use it."""

    def __init__(self, folder: str, why_single: str = "") -> None:
        self.why_single = why_single
        self._folder = folder
        self._by_uid: dict[str, str] = {}
        self._taken: set[str] = set()

    def keep(self, uid: str, address: str) -> None:
        """Called for each pod that an earlier node left, before the first ``take``."""
        if is_own(address):
            self._by_uid[uid] = address
            self._taken.add(address)

    def take(self, pod: Pod) -> str:
        """The address of a pod, until ``release``."""
        if self.why_single or not has_own(pod):
            return LOOPBACK
        if pod.uid not in self._by_uid:
            places = addresses(PODS, f"{self._folder}/{pod.key}")
            self.keep(pod.uid, next((each for each in places if each not in self._taken), LOOPBACK))
        return self._by_uid.get(pod.uid, LOOPBACK)

    def release(self, uid: str) -> None:
        self._taken.discard(self._by_uid.pop(uid, ""))


def has_own(pod: Pod) -> bool:
    """True for pods that get an address of their own where the system has more than one."""
    return bool(pod.spec.get("subdomain")) and not pod.spec.get("hostNetwork")


def is_own(address: str) -> bool:
    """True for an address that ``Addresses`` gave to a pod."""
    try:
        first, second, *_ = socket.inet_aton(address)
    except OSError:
        return False
    return first == 127 and second in PODS
