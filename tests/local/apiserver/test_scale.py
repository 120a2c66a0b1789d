"""The scale subresource: ours and a real kube-apiserver show and write the same numbers."""

import json
from typing import Any

import pytest

from testbed.plane import ControlPlane
from tests.local.apiserver.client import Client
from trainmaster.core.ids import Resource
from trainmaster.local.apiserver.http.status import Refusal
from trainmaster.local.apiserver.objects import scale
from trainmaster.local.apiserver.objects.resource import Served

Object = dict[str, Any]

GROUP = "scale.example.com"
VERSION: Object = {
    "name": "v1",
    "served": True,
    "storage": True,
    "subresources": {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.workers.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
FARM = Served(Resource(GROUP, "v1", "farms", "Farm"), "farm", definition=VERSION)


def a_farm(**parts: Any) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Farm", "metadata": {"name": "x"}, **parts}


@pytest.fixture
async def farms(real_plane: ControlPlane, namespace: str) -> str:
    names = {"plural": "farms", "kind": "Farm", "singular": "farm", "listKind": "FarmList"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"farms.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [VERSION]},
    }
    real_plane.apply(json.dumps(definition))
    return f"/apis/{GROUP}/v1/namespaces/{namespace}/farms"


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({"workers": {"replicas": 3}}, {"replicas": 2, "selector": "a=b"}, id="all"),
        pytest.param({"workers": {"replicas": 0}}, {}, id="zero"),
        pytest.param({"workers": {"replicas": 3}}, {}, id="no-status"),
    ],
)
async def test_a_scale_shows_what_a_real_one_shows(spec: Object, status: Object, farms: str, real: Client) -> None:
    await real.create(farms, a_farm(spec=spec))
    stored = await real.merge(f"{farms}/x/status", {"status": status})

    assert scale.read(FARM, stored) == await real.get(f"{farms}/x/scale")


async def test_without_a_number_there_is_no_scale_until_somebody_writes_one(farms: str, real: Client) -> None:
    stored = await real.create(farms, a_farm(spec={"more": 2}))

    theirs = await real.request("GET", f"{farms}/x/scale")
    with pytest.raises(Refusal) as mine:
        scale.show(FARM, stored)
    scaled = await real.merge(f"{farms}/x/scale", {"spec": {"replicas": 4}})

    assert (theirs.code, theirs.body) == (500, mine.value.body)
    assert scaled["spec"] == {"replicas": 4}
    assert scale.show(FARM, await real.get(f"{farms}/x")) == await real.get(f"{farms}/x/scale")


async def test_a_scale_writes_where_a_real_one_writes(farms: str, real: Client) -> None:
    stored = await real.create(farms, a_farm(spec={"workers": {"replicas": 1, "more": 2}}))
    wanted = {**scale.read(FARM, stored), "spec": {"replicas": 5}}

    mine = scale.write(FARM, stored, wanted)
    await real.request("PUT", f"{farms}/x/scale", wanted)

    assert mine["spec"] == (await real.get(f"{farms}/x"))["spec"] == {"workers": {"replicas": 5, "more": 2}}
    assert stored["spec"] == {"workers": {"replicas": 1, "more": 2}}


def test_a_path_that_is_not_there_yet_is_made() -> None:
    assert scale.write(FARM, a_farm(), {"spec": {"replicas": 2}})["spec"] == {"workers": {"replicas": 2}}


@pytest.mark.parametrize("replicas", [-1, "3", 1.5, True])
def test_a_bad_number_is_refused(replicas: Any) -> None:
    assert [each.field for each in scale.errors({"spec": {"replicas": replicas}})] == ["spec.replicas"]
