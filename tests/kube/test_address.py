"""trainmaster.kube.address"""

import pytest

from trainmaster.core.errors import BadConfig, Invalid
from trainmaster.core.ids import EVENT, LEASE, POD, Key, Resource
from trainmaster.kube.address import MOST_PREFIXES, Addresses, is_gated, server_url

NODE = Resource("", "v1", "nodes", "Node")
DIJOB = Resource("diengine.opendilab.org", "v2alpha1", "dijobs", "DIJob")


@pytest.mark.parametrize(
    ("resource", "key", "suffix", "expected"),
    [
        pytest.param(POD, Key("ml", "a"), "", "/api/v1/namespaces/ml/pods/a", id="core group"),
        pytest.param(
            DIJOB,
            Key("ml", "a"),
            "/status",
            "/apis/diengine.opendilab.org/v2alpha1/namespaces/ml/dijobs/a/status",
            id="named group, subresource",
        ),
        pytest.param(NODE, Key("", "n1"), "", "/api/v1/nodes/n1", id="cluster-scoped"),
        pytest.param(
            POD, Key("a/b", "c d?e#f%g/ä"), "", "/api/v1/namespaces/a%2Fb/pods/c%20d%3Fe%23f%25g%2F%C3%A4", id="encoded"
        ),
    ],
)
def test_objects_have_their_documented_paths(resource: Resource, key: Key, suffix: str, expected: str) -> None:
    assert str(Addresses("https://h:1").item(resource, key, suffix)) == f"https://h:1{expected}"


@pytest.mark.parametrize(
    ("namespace", "query", "expected"),
    [
        pytest.param("", {}, "/api/v1/pods", id="all namespaces"),
        pytest.param("ml", {}, "/api/v1/namespaces/ml/pods", id="one namespace"),
        pytest.param(
            "ml",
            {"labelSelector": "a=b,c in (d e)", "continue": "x+/="},
            "/api/v1/namespaces/ml/pods?labelSelector=a%3Db%2Cc%20in%20%28d%20e%29&continue=x%2B%2F%3D",
            id="query",
        ),
    ],
)
def test_collections_have_their_documented_paths(namespace: str, query: dict[str, str], expected: str) -> None:
    assert str(Addresses("http://h:1").collection(POD, namespace, query)) == f"http://h:1{expected}"


def test_server_may_be_below_a_path() -> None:
    url = Addresses("https://rancher.test/k8s/clusters/c-1").create(POD, "ml")

    assert str(url) == "https://rancher.test/k8s/clusters/c-1/api/v1/namespaces/ml/pods?fieldManager=trainmaster"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_name_that_would_address_something_else_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        Addresses("http://h").item(POD, Key("ml", name))


@pytest.mark.parametrize(
    ("server", "tls", "expected"),
    [
        pytest.param("https://h:6443", False, "https://h:6443", id="complete"),
        pytest.param("https://h:6443/", False, "https://h:6443", id="slash at the end"),
        pytest.param("http://h/a/b/", False, "http://h/a/b", id="path"),
        pytest.param("10.0.0.1:8080", False, "http://10.0.0.1:8080", id="no scheme is http"),
        pytest.param("localhost:8080", False, "http://localhost:8080", id="host that looks like a scheme"),
        pytest.param("h:6443", True, "https://h:6443", id="no scheme but TLS material is https"),
        pytest.param("https://[fd00::1]:6443", True, "https://[fd00::1]:6443", id="IPv6"),
    ],
)
def test_server_is_completed_as_client_go_does(server: str, tls: bool, expected: str) -> None:
    assert server_url(server, tls=tls, where="w") == expected


@pytest.mark.parametrize("server", ["ftp://h", "https://", "http://h:port", "http://[::1", "https://me:pass@h"])
def test_server_that_is_no_plain_http_url_is_refused(server: str) -> None:
    with pytest.raises(BadConfig, match=r"^w: ") as caught:
        server_url(server, tls=False, where="w")

    assert "pass@" not in str(caught.value)


@pytest.mark.parametrize(
    ("resource", "key", "gated"),
    [
        pytest.param(POD, Key("ml", "a"), True, id="pod"),
        pytest.param(POD, Key("events", "events"), True, id="pod with a misleading name"),
        pytest.param(DIJOB, Key("ml", "leases"), True, id="job with a misleading name"),
        pytest.param(NODE, Key("", "a"), True, id="cluster-scoped"),
        pytest.param(LEASE, Key("ml", "leader"), False, id="lease"),
        pytest.param(EVENT, Key("ml", "e"), False, id="event"),
    ],
)
def test_all_but_leases_and_events_need_leadership(resource: Resource, key: Key, gated: bool) -> None:
    addresses = Addresses("http://h/prefix")

    assert is_gated(addresses.item(resource, key).raw_path) is gated
    assert is_gated(addresses.collection(resource, key.namespace, {}).raw_path) is gated


def test_cached_prefixes_are_bounded() -> None:
    addresses = Addresses("https://api")
    for number in range(MOST_PREFIXES + 10):
        addresses.create(POD, f"made-up-{number}")

    assert len(addresses._prefixes) <= MOST_PREFIXES
    assert len(addresses._creates) <= MOST_PREFIXES
