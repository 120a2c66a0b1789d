"""The network of the cluster: one bridge on this machine, and a network namespace with one link for each node.

Pods of node 2 have addresses of 10.244.2.0/24; every node, and this machine, has a route to them. Nothing else of
this machine's network is touched: no forwarding, no packet filter, no default route.
"""

import ipaddress
import json
import subprocess
from pathlib import Path
from typing import NamedTuple

BRIDGE = "tmbr0"
GATEWAY = "10.123.0.1"
LAN = ipaddress.ip_network("10.123.0.0/24")
PODS = ipaddress.ip_network("10.244.0.0/16")
SERVICES = ipaddress.ip_network("10.96.0.0/16")
API_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
MTU = 1400
TIMEOUT = 30.0


class NetworkTaken(Exception):
    """This machine uses the addresses of the cluster already."""


class Place(NamedTuple):
    """Where a node is in the network."""

    number: int

    @property
    def name(self) -> str:
        """The name of the node."""
        return f"node{self.number}"

    @property
    def address(self) -> str:
        """The address of the node."""
        return str(LAN[10 + self.number])

    @property
    def pods(self) -> str:
        """The addresses of its pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def link(self) -> str:
        """The end of its cable on this machine."""
        return f"tmv{self.number}"

    @property
    def namespace(self) -> str:
        """The name of its network namespace."""
        return f"tm-{self.name}"

    @property
    def namespace_file(self) -> Path:
        """Where `ip netns` keeps it."""
        return Path("/run/netns") / self.namespace


def create_bridge() -> None:
    """Create the bridge and give this machine its address on it."""
    _refuse_taken()
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{GATEWAY}/{LAN.prefixlen}", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def connect(place: Place, others: list[Place]) -> None:
    """Create the namespace of a node, its link to the bridge, and the routes to its pods and those of the others."""
    _ip("netns", "add", place.namespace)
    _ip("link", "add", place.link, "type", "veth", "peer", "name", "eth0", "netns", place.namespace)
    _ip("link", "set", place.link, "master", BRIDGE, "up")
    _inside(place, "link", "set", "lo", "up")
    _inside(place, "address", "add", f"{place.address}/{LAN.prefixlen}", "dev", "eth0")
    _inside(place, "link", "set", "eth0", "up")
    # kube-proxy picks the node's own addresses by the default route; nothing behind it answers.
    _inside(place, "route", "add", "default", "via", GATEWAY)
    for other in others:
        if other != place:
            _inside(place, "route", "add", other.pods, "via", other.address)
    enter = ["nsenter", f"--net={place.namespace_file}", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]
    subprocess.run(enter, timeout=TIMEOUT, check=True)
    _ip("route", "add", place.pods, "via", place.address, "dev", BRIDGE)


def partition(place: Place) -> None:
    """Pull the cable of a node."""
    _ip("link", "set", place.link, "down")


def heal(place: Place) -> None:
    """Put the cable back."""
    _ip("link", "set", place.link, "up")


def is_partitioned(place: Place) -> bool:
    """Is the cable pulled?"""
    flags = json.loads(_ip("-json", "link", "show", place.link))[0]["flags"]
    return "UP" not in flags


def remove(places: list[Place]) -> None:
    """Remove everything that the functions above have created, as far as it is there. The kernel may keep a namespace
    for a while after its deletion, with the link: that is deleted first."""
    for place in places:
        if Path("/sys/class/net", place.link).exists():
            _ip("link", "delete", place.link)
        if place.namespace_file.exists():
            _ip("netns", "delete", place.namespace)
    if Path("/sys/class/net", BRIDGE).exists():
        _ip("link", "delete", BRIDGE)


def _refuse_taken() -> None:
    for route in json.loads(_ip("-json", "route", "show")):
        if route["dst"] == "default":
            continue
        taken = ipaddress.ip_network(route["dst"], strict=False)
        if any(ours.overlaps(taken) for ours in (LAN, PODS, SERVICES)):
            raise NetworkTaken(
                f"this machine has a route to {taken} (dev {route.get('dev')}), which the cluster would use itself"
            )


def _inside(place: Place, *arguments: str) -> None:
    _ip("-netns", place.namespace, *arguments)


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
