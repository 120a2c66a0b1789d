"""Protobuf bodies: what kubectl sends is read, everything else is refused with a sentence."""

import pytest

from tests.local.apiserver.client import Client
from trainmaster.local.apiserver.kubectl.protobuf import MEDIA_TYPE, decode

MAPS = "/api/v1/namespaces/default/configmaps"


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes((*found, value))


def sealed(kind: str, raw: bytes, api_version: str = "v1") -> bytes:
    type_meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, type_meta) + field(2, raw) + field(3, b"") + field(4, b"")


def entry(key: str, value: bytes) -> bytes:
    return field(1, key.encode()) + field(2, value)


META = field(1, b"a") + field(2, b"") + field(7, 0) + field(8, b"") + field(11, entry("l", b"v"))


async def test_a_config_map_is_created_as_from_json(api: Client) -> None:
    raw = field(1, META) + field(2, entry("x", b"y")) + field(3, entry("bin", b"\xff")) + field(4, 1)
    answer = await api.request("POST", MAPS, sealed("ConfigMap", raw), content_type=MEDIA_TYPE)
    assert answer.code == 201, answer
    assert (answer.body["data"], answer.body["binaryData"]) == ({"x": "y"}, {"bin": "/w=="})
    assert (answer.body["immutable"], answer.body["metadata"]["labels"]) == (True, {"l": "v"})


def test_a_service_has_ports_of_both_kinds() -> None:
    number = field(1, b"a") + field(3, 80) + field(4, field(1, 0) + field(2, 8080) + field(3, b""))
    name = field(1, b"b") + field(3, 81) + field(4, field(1, 1) + field(2, 0) + field(3, b"web"))
    raw = field(1, META) + field(2, field(1, number) + field(1, name) + field(2, entry("s", b"t")))
    spec = decode(sealed("Service", raw))["spec"]
    assert spec["ports"] == [
        {"name": "a", "port": 80, "targetPort": 8080},
        {"name": "b", "port": 81, "targetPort": "web"},
    ]
    assert spec["selector"] == {"s": "t"}


def test_a_time_and_a_negative_number_are_read() -> None:
    meta = field(1, b"a") + field(8, field(1, 86400)) + field(10, 2**64 - 1)
    found = decode(sealed("Namespace", field(1, meta)))["metadata"]
    assert found == {"name": "a", "creationTimestamp": "1970-01-02T00:00:00Z", "deletionGracePeriodSeconds": -1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00",
        b"k8s\x00\xff\xff",
        sealed("Pod", b""),
        sealed("ConfigMap", field(99, b"new")),
        sealed("ConfigMap", field(1, field(1, 7))),
        sealed("ConfigMap", field(4, b"x")),
        sealed("ConfigMap", field(2, 7)),
        sealed("ConfigMap", field(1, field(1, b"\xff"))),
        sealed("ConfigMap", b"\x0d\x00\x00\x00\x00"),
        sealed("ConfigMap", b"\x0a\x7f"),
        sealed("Namespace", field(1, field(8, field(1, 2**62)))),
        sealed("ConfigMap", b"\xff" * 12),
    ],
)
async def test_undecodable_bodies_are_refused(api: Client, body: bytes) -> None:
    answer = await api.request("POST", MAPS, body, content_type=MEDIA_TYPE)
    assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")
