"""Pods that can never run on this node, and the messages of their rejection."""

from typing import Any

import pytest

from tests.local.node.build import a_container, a_pod
from trainmaster.local.node.admission import rejection
from trainmaster.local.node.isolation import Isolation
from trainmaster.local.node.pod import Pod

Object = dict[str, Any]

FREE = Isolation("user")
NONE = Isolation("", "Operation not permitted")


def mounting(path: str, **fields: Any) -> Object:
    return a_container(volumeMounts=[{"name": "v", "mountPath": path, **fields}])


def with_volume(container: Object, **volume: Any) -> Pod:
    return a_pod(container, volumes=[{"name": "v", **volume}])


@pytest.mark.parametrize("isolation", [FREE, NONE])
@pytest.mark.parametrize(
    "pod",
    [
        a_pod(),
        a_pod(a_container(livenessProbe={"exec": {"command": ["true"]}})),
        with_volume(a_container(), emptyDir={}),
        with_volume(mounting("/data"), hostPath={"path": "/data/"}),
    ],
)
def test_supported_pods_are_admitted(pod: Pod, isolation: Isolation) -> None:
    assert rejection(pod, isolation) is None


@pytest.mark.parametrize(
    ("pod", "isolation", "reason", "message"),
    [
        (a_pod({"name": "x"}), FREE, "NoCommand", "container x has no command"),
        (a_pod({"name": "x", "args": ["a"]}), FREE, "NoCommand", "container x has no command"),
        (a_pod(initContainers=[{"name": "i"}]), FREE, "NoCommand", "container i has no command"),
        (with_volume(a_container(), nfs={}), FREE, "UnsupportedVolume", "volume v is a nfs, which local mode"),
        (
            with_volume(a_container(), projected={"sources": [{"serviceAccountToken": {}}]}),
            FREE,
            "UnsupportedVolume",
            "volume v projects a serviceAccountToken, which local mode does not have",
        ),
        (
            with_volume(mounting("/data"), emptyDir={}),
            NONE,
            "NamespacesNotAllowed",
            "container main mounts v at /data, which needs Linux user namespaces, and this system does not allow them",
        ),
        (with_volume(mounting("/b"), hostPath={"path": "/a"}), NONE, "NamespacesNotAllowed", "container main mounts v"),
        (
            with_volume(mounting("/a", subPath="b"), hostPath={"path": "/a"}),
            NONE,
            "NamespacesNotAllowed",
            "container main mounts v",
        ),
        (
            a_pod(a_container(readinessProbe={"grpc": {"port": 1}})),
            FREE,
            "UnsupportedProbe",
            "container main has a readinessProbe of kind grpc, which local mode does not have; use exec, httpGet or ",
        ),
    ],
)
def test_rejected_pod_has_a_reason(pod: Pod, isolation: Isolation, reason: str, message: str) -> None:
    failure = rejection(pod, isolation)

    assert failure is not None
    assert (failure.reason, failure.message[: len(message)]) == (reason, message)


def test_token_can_be_had_where_there_are_service_accounts() -> None:
    pod = with_volume(mounting("/token"), projected={"sources": [{"serviceAccountToken": {"path": "token"}}]})

    assert rejection(pod, FREE, has_accounts=True) is None
