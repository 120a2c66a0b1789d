"""Strategic merge patches: ours and a real kube-apiserver make the same of one."""

from typing import Any

import pytest

from tests.local.apiserver.client import STRATEGIC, Client
from trainmaster.local.apiserver.objects.strategic import BadPatch, merge

Object = dict[str, Any]


def a_pod(**spec: Any) -> Object:
    return {
        "metadata": {"name": "x", "labels": {"a": "b", "c": "d"}, "finalizers": ["e.f/g", "h.i/j"]},
        "spec": {
            "containers": [
                {
                    "name": "one",
                    "image": "i",
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "args": ["x", "y"],
                },
                {"name": "two", "image": "j"},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/w"}}],
            "tolerations": [{"key": "t", "operator": "Exists"}],
            "nodeSelector": {"n": "1"},
            **spec,
        },
    }


def in_first(**fields: Any) -> Object:
    return {"spec": {"containers": [{"name": "one", **fields}]}}


def spec_of(patched: Object) -> Any:
    return patched["spec"]


def env_of(patched: Object) -> Any:
    return patched["spec"]["containers"][0]["env"]


PATCHES: dict[str, tuple[Object, Any]] = {
    "a-container-by-name": (
        in_first(image="k"),
        lambda pod: [each["image"] for each in pod["spec"]["containers"]] == ["k", "j"],
    ),
    "a-new-container": (
        {"spec": {"containers": [{"name": "three", "image": "k"}]}},
        lambda pod: [each["name"] for each in pod["spec"]["containers"]] == ["three", "one", "two"],
    ),
    "a-container-less": (
        {"spec": {"containers": [{"name": "one", "$patch": "delete"}]}},
        lambda pod: [each["name"] for each in pod["spec"]["containers"]] == ["two"],
    ),
    "other-containers": (
        {"spec": {"containers": [{"name": "three", "image": "k"}, {"$patch": "replace"}]}},
        lambda pod: pod["spec"]["containers"] == [{"name": "three", "image": "k"}],
    ),
    "a-variable": (
        in_first(env=[{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]),
        lambda pod: [(each["name"], each["value"]) for each in env_of(pod)] == [("A", "1"), ("B", "3"), ("C", "4")],
    ),
    "no-variables": (in_first(env=None), lambda pod: "env" not in pod["spec"]["containers"][0]),
    "arguments-as-a-whole": (in_first(args=["z"]), lambda pod: pod["spec"]["containers"][0]["args"] == ["z"]),
    "tolerations-as-a-whole": ({"spec": {"tolerations": []}}, lambda pod: pod["spec"]["tolerations"] == []),
    "a-label": (
        {"metadata": {"labels": {"a": None, "k": "l"}}},
        lambda pod: pod["metadata"]["labels"] == {"c": "d", "k": "l"},
    ),
    "all-labels": (
        {"metadata": {"labels": {"$patch": "replace", "k": "l"}}},
        lambda pod: pod["metadata"]["labels"] == {"k": "l"},
    ),
    "a-finalizer": (
        {"metadata": {"finalizers": ["k.l/m"]}},
        lambda pod: pod["metadata"]["finalizers"] == ["k.l/m", "e.f/g", "h.i/j"],
    ),
    "a-finalizer-less": (
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["e.f/g"]}},
        lambda pod: pod["metadata"]["finalizers"] == ["h.i/j"],
    ),
    "an-order": (
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "two"}, {"name": "one"}],
                "containers": [{"name": "two", "image": "k"}],
            }
        },
        lambda pod: [each["name"] for each in pod["spec"]["containers"]] == ["two", "one"],
    ),
    "another-kind-of-volume": (
        {"spec": {"volumes": [{"name": "w", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}},
        lambda pod: pod["spec"]["volumes"][1] == {"name": "w", "emptyDir": {}},
    ),
    "nothing": ({}, lambda pod: pod == a_pod()),
}


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in PATCHES.items()])
def test_a_patch_does_what_it_says(row: tuple[Object, Any]) -> None:
    patch, holds = row

    assert holds(merge(a_pod(), patch, "Pod"))


def test_neither_the_object_nor_the_patch_is_changed() -> None:
    pod, patch = a_pod(), in_first(image="k")

    merge(pod, patch, "Pod")

    assert (pod, patch) == (a_pod(), in_first(image="k"))


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {"containers": [{"image": "k"}]}}, id="item-without-its-key"),
        pytest.param({"spec": {"containers": ["k"]}}, id="item-is-no-object"),
        pytest.param({"spec": {"$patch": "odd"}}, id="unknown-directive"),
        pytest.param({"spec": {"$retainKeys": "x"}}, id="retained-keys-are-no-list"),
        pytest.param({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}, id="deleted-are-no-list"),
    ],
)
def test_a_bad_patch_is_refused(patch: Object) -> None:
    with pytest.raises(BadPatch):
        merge(a_pod(), patch, "Pod")


SERVICE: Object = {
    "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.f/g", "h.i/j"]},
    "spec": {
        "clusterIP": "None",
        "selector": {"a": "b"},
        "ports": [
            {"name": "one", "port": 80, "protocol": "TCP", "targetPort": 80},
            {"name": "two", "port": 81, "protocol": "TCP", "targetPort": 81},
        ],
    },
}


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}, id="port"),
        pytest.param(
            {"spec": {"ports": [{"port": 82, "name": "three", "targetPort": 82, "protocol": "TCP"}]}}, id="new-port"
        ),
        pytest.param({"spec": {"ports": [{"port": 80, "$patch": "delete"}]}}, id="port-less"),
        pytest.param(
            {
                "spec": {
                    "$setElementOrder/ports": [{"port": 82}, {"port": 80}],
                    "ports": [{"port": 82, "name": "three", "targetPort": 82, "protocol": "TCP"}],
                }
            },
            id="order",
        ),
        pytest.param({"spec": {"selector": {"$patch": "replace", "z": "y"}}}, id="other-selector"),
        pytest.param({"spec": {"selector": {"a": None, "z": "y"}}}, id="selector"),
        pytest.param({"metadata": {"annotations": None}}, id="no-annotations"),
        pytest.param({"metadata": {"finalizers": ["k.l/m", "e.f/g"]}}, id="finalizer"),
        pytest.param({"metadata": {"$deleteFromPrimitiveList/finalizers": ["e.f/g"]}}, id="finalizer-less"),
        pytest.param(
            {
                "metadata": {
                    "$setElementOrder/finalizers": ["k.l/m", "h.i/j", "e.f/g"],
                    "finalizers": ["k.l/m"],
                }
            },
            id="order-of-finalizers",
        ),
    ],
)
async def test_a_real_api_server_makes_the_same_of_it(patch: Object, real: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    stored = await real.create(path, SERVICE)

    answer = await real.request("PATCH", f"{path}/x", patch, content_type=STRATEGIC)

    mine = merge(stored, patch, "Service")
    assert answer.code == 200, answer.body
    assert mine["spec"] == answer.body["spec"]
    for field in ("labels", "annotations", "finalizers"):
        assert mine["metadata"].get(field) == answer.body["metadata"].get(field)
