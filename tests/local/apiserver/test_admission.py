"""The door for admission: what is asked, when, and what comes of the answer. The resource is made up."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from testbed.certificate import Authority
from tests.local.apiserver.client import MERGE, Client
from tests.local.apiserver.conftest import TOKEN
from trainmaster.local.apiserver.http.server import ApiOptions, serve_api
from trainmaster.local.apiserver.objects.admission import Admission, Review, Write
from trainmaster.local.apiserver.objects.field_error import Cause

Object = dict[str, Any]

FARMS = "/apis/example.com/v1/namespaces/default/farms"
SPEC = {
    "type": "object",
    "properties": {"size": {"type": "integer", "maximum": 9}, "owner": {"type": "string"}},
}
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "farms.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "farms", "kind": "Farm"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": SPEC,
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def a_farm(name: str = "a", **spec: Any) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Farm", "metadata": {"name": name}, "spec": spec}


class Door:
    """Remembers what it was asked; what it answers is set by the test."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Object, Object | None]] = []
        self.operations: list[Object] = []
        self.review = Review()

    def mutate(self, write: Write) -> list[Object]:
        self._note("mutate", write)
        return self.operations

    def validate(self, write: Write) -> Review:
        self._note("validate", write)
        return self.review

    def _note(self, what: str, write: Write) -> None:
        self.asked.append((what, write.new["spec"], write.old and write.old["spec"]))


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
async def farms(door: Door, api_options: ApiOptions, authority: Authority) -> AsyncIterator[Client]:
    admission = Admission(door.mutate, door.validate)
    options = msgspec.structs.replace(api_options, definitions=[DEFINITION], admission=admission)
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        yield client


async def test_a_new_object_is_reviewed_as_it_was_mutated(door: Door, farms: Client) -> None:
    door.operations = [{"op": "add", "path": "/spec/owner", "value": "nobody"}]

    stored = await farms.create(FARMS, a_farm(size=1))

    assert door.asked == [
        ("mutate", {"size": 1}, None),
        ("validate", {"size": 1, "owner": "nobody"}, None),
    ]
    assert stored["spec"] == {"size": 1, "owner": "nobody"}


async def test_an_edit_and_a_scale_are_reviewed_beside_the_stored_object(door: Door, farms: Client) -> None:
    await farms.create(FARMS, a_farm(size=1))
    door.asked.clear()

    await farms.merge(f"{FARMS}/a", {"spec": {"size": 2}})
    await farms.merge(f"{FARMS}/a/scale", {"spec": {"replicas": 3}})

    assert door.asked == [
        (what, {"size": size}, {"size": size - 1}) for size in (2, 3) for what in ("mutate", "validate")
    ]


async def test_a_status_and_built_in_objects_are_not_reviewed(door: Door, farms: Client) -> None:
    await farms.create(FARMS, a_farm())
    door.asked.clear()
    door.review = Review([Cause("spec", "FieldValueInvalid", "is bad")])

    await farms.merge(f"{FARMS}/a/status", {"status": {"size": 2}})
    await farms.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})

    assert door.asked == []


async def test_the_schema_is_checked_after_the_mutation_and_before_the_review(door: Door, farms: Client) -> None:
    door.operations = [{"op": "add", "path": "/spec/size", "value": 10}]

    code, body, _ = await farms.request("POST", FARMS, a_farm())

    assert (code, body["details"]["causes"][0]["field"]) == (422, "spec.size")
    assert [what for what, _, _ in door.asked] == ["mutate"]


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_a_refusal_is_a_status_and_nothing_is_stored(query: str, door: Door, farms: Client) -> None:
    door.review = Review([Cause("spec.size", "FieldValueInvalid", "is odd"), Cause("", "FieldValueInvalid", "is bad")])

    code, body, _ = await farms.request("POST", f"{FARMS}{query}", a_farm(size=1))

    assert (code, body["kind"], body["reason"]) == (422, "Status", "Invalid")
    assert body["message"] == 'Farm.example.com "a" is invalid: [spec.size: is odd, is bad]'
    assert body["details"] == {
        "name": "a",
        "group": "example.com",
        "kind": "Farm",
        "causes": [
            {"reason": "FieldValueInvalid", "field": "spec.size", "message": "is odd"},
            {"reason": "FieldValueInvalid", "message": "is bad"},
        ],
    }
    assert (await farms.get(FARMS))["items"] == []


async def test_a_refused_edit_leaves_what_is_stored(door: Door, farms: Client) -> None:
    stored = await farms.create(FARMS, a_farm(size=1))
    door.review = Review([Cause("spec.size", "FieldValueInvalid", "is odd")])

    edited = await farms.request("PATCH", f"{FARMS}/a", {"spec": {"size": 2}}, content_type=MERGE)
    scaled = await farms.request("PATCH", f"{FARMS}/a/scale", {"spec": {"replicas": 2}}, content_type=MERGE)

    assert (edited.code, scaled.code) == (422, 422)
    assert await farms.get(f"{FARMS}/a") == stored


async def test_warnings_are_sent_with_every_answer_as_headers(door: Door, farms: Client) -> None:
    door.review = Review(warnings=('spec: is "odd" \\ …', "cannot stand\nin a header"))
    expected = ('299 - "spec: is \\"odd\\" \\\\ …"',)

    created = await farms.request("POST", FARMS, a_farm())
    edited = await farms.request("PATCH", f"{FARMS}/a", {"spec": {"size": 2}}, content_type=MERGE)
    scaled = await farms.request("PATCH", f"{FARMS}/a/scale", {"spec": {"replicas": 3}}, content_type=MERGE)
    door.review = Review([Cause("spec", "FieldValueInvalid", "is bad")], door.review.warnings)
    refused = await farms.request("POST", FARMS, a_farm("b"))

    assert [answer.code for answer in (created, edited, scaled, refused)] == [201, 200, 200, 422]
    assert {answer.warnings for answer in (created, edited, scaled, refused)} == {expected}
