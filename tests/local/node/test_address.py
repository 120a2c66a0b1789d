"""Which pods have an address of their own, and which one."""

import itertools
from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.local.node.build import a_pod
from trainmaster.local.node.address import PODS, SERVERS, Addresses, addresses, is_own
from trainmaster.local.node.pod import LOOPBACK, Pod


def named(uid: str, name: str = "p") -> Pod:
    return a_pod(metadata={"uid": uid, "name": name}, subdomain="s")


@pytest.mark.parametrize(
    ("pod", "has_own"),
    [
        pytest.param(a_pod(subdomain="s", hostname="h"), True, id="with a subdomain"),
        pytest.param(a_pod(hostname="h"), False, id="without one"),
        pytest.param(a_pod(subdomain="s", hostNetwork=True), False, id="on the network of the node"),
    ],
)
def test_a_pod_with_a_subdomain_has_its_own_address(pod: Pod, has_own: bool) -> None:
    address = Addresses("folder").take(pod)

    assert is_own(address) == has_own
    assert (address == LOOPBACK) != has_own


def test_without_other_loopback_addresses_all_pods_have_the_same() -> None:
    single = Addresses("folder", "can't assign requested address")

    assert {single.take(named("a")), single.take(named("b"))} == {LOOPBACK}


def test_no_two_pods_have_the_same_address() -> None:
    """Of the same name, too: the older one may still be terminating."""
    book = Addresses("folder")

    assert len({book.take(named(f"{uid}-{name}", f"p{name}")) for uid in range(3) for name in range(500)}) == 1500


def test_a_pod_keeps_its_address() -> None:
    book = Addresses("folder")
    first = book.take(named("a"))

    assert book.take(named("a")) == first
    assert book.take(named("b")) != first


def test_a_pod_that_comes_again_under_its_name_has_its_old_address() -> None:
    book = Addresses("folder")
    first = book.take(named("a"))
    book.release("a")

    assert book.take(named("b")) == first


def test_two_nodes_use_different_addresses() -> None:
    assert Addresses("one").take(named("a")) != Addresses("two").take(named("a"))


def test_a_pod_of_an_earlier_node_keeps_its_address() -> None:
    book = Addresses("folder")
    book.keep("old", "127.64.0.9")
    book.keep("shared", LOOPBACK)
    book.keep("strange", "10.0.0.1")

    assert book.take(named("old")) == "127.64.0.9"
    assert is_own(book.take(named("shared", "p1")))
    assert is_own(book.take(named("strange", "p2")))


@pytest.mark.parametrize("use", [SERVERS, PODS])
@pytest.mark.parametrize("seed", ["", "a", "b"])
def test_no_address_is_one_that_systems_use(use: range, seed: str) -> None:
    reserved = [IPv4Network("127.0.0.0/16"), IPv4Network("127.255.0.0/16")]

    for address in map(IPv4Address, itertools.islice(addresses(use, seed), 1000)):
        assert address.is_loopback
        assert not any(address in network for network in reserved)
        assert address.packed[3] not in (0, 255)


def test_all_addresses_of_a_use_are_tried_once() -> None:
    few = range(40, 41)

    found = list(addresses(few, "seed"))

    assert len(found) == len(set(found)) == 256 * 254


def test_pods_never_have_the_address_of_a_server() -> None:
    assert not set(SERVERS) & set(PODS)
