"""Verbs of the API beyond the conformance table, and the refusal of unsupported ones."""

from typing import Any

import pytest

from tests.local.apiserver.client import MERGE, STRATEGIC, Answer, Client

APPLY = "application/apply-patch+yaml"
NAMESPACE = "/api/v1/namespaces/default"
MAPS = f"{NAMESPACE}/configmaps"
PODS = f"{NAMESPACE}/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def definition() -> dict[str, Any]:
    properties = {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}, "status": {"type": "object"}}
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"scale": scale},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{PODS}/a/attach"),
        ("GET", f"{PODS}/a/proxy/some/path"),
        ("POST", f"{PODS}/a/eviction"),
        ("PATCH", f"{PODS}/a/ephemeralcontainers"),
        ("PATCH", f"{PODS}/a/resize"),
        ("GET", f"{NAMESPACE}/services/a/proxy"),
        ("GET", "/api/v1/nodes/a/proxy/x"),
        ("POST", f"{NAMESPACE}/serviceaccounts/a/token"),
    ],
)
async def test_unsupported_requests_have_a_message(api: Client, method: str, path: str) -> None:
    answer = await api.request(method, path)
    assert (answer.code, answer.body["kind"]) == (501, "Status")
    assert "is not supported by the local cluster" in answer.body["message"]


async def test_a_node_cannot_be_drained_and_the_response_says_what_to_use(api: Client) -> None:
    answer = await api.request("DELETE", f"{PODS}/a", b"k8s", content_type="application/vnd.kubernetes.protobuf")

    assert answer.code == 501
    assert answer.body["message"].startswith(
        "kubectl drain is not supported by the local cluster; end jobs with `train"
    )


def applied(name: str, **data: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def apply(api: Client, path: str, body: Any) -> Answer:
    return await api.request("PATCH", f"{path}?fieldManager=me", body, content_type=APPLY)


async def test_server_side_apply_creates_then_merges_and_warns_that_nothing_is_removed(api: Client) -> None:
    made = await apply(api, f"{MAPS}/a", applied("a", x="1", y="1"))
    changed = await apply(api, f"{MAPS}/a", applied("a", x="2"))

    assert (made.code, made.warnings) == (201, ())
    assert (changed.code, changed.body["data"]) == (200, {"x": "2", "y": "1"})
    assert "a field that you removed from the manifest stays in the object" in changed.warnings[0]


async def test_server_side_apply_merges_lists_of_pods_by_their_keys(api: Client) -> None:
    await apply(api, f"{PODS}/a", {"apiVersion": "v1", "kind": "Pod", **pod("a")})
    image = {"spec": {"containers": [{"name": "c", "image": "other", "command": None}]}}

    changed = await apply(api, f"{PODS}/a", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **image})

    assert [(each["name"], each["image"]) for each in changed.body["spec"]["containers"]] == [("c", "other")]


@pytest.mark.parametrize("body", [b"metadata: {name: a}", b"[]", b"null"])
async def test_a_server_side_apply_that_cannot_be_read_is_a_bad_request(api: Client, body: bytes) -> None:
    assert (await apply(api, f"{MAPS}/a", body)).code == 400


async def test_server_side_apply_needs_a_manager(api: Client) -> None:
    answer = await api.request("PATCH", f"{MAPS}/a", applied("a"), content_type=APPLY)

    assert answer.code == 422
    assert "fieldManager: Required value: is required for apply patch" in answer.body["message"]


@pytest.mark.parametrize(
    "path", ["/apis/apps/v1/namespaces/default/deployments", "/apis/batch/v1/namespaces/default/cronjobs"]
)
async def test_a_workload_that_is_not_run_is_refused_with_what_is(api: Client, path: str) -> None:
    answer = await api.request("POST", path, {})

    assert answer.code == 404
    assert "it runs pods (kubectl run), Jobs (kubectl create job) and the jobs of trainmaster" in answer.body["message"]


@pytest.mark.parametrize("content_type", ["application/yaml", "application/cbor", "text/plain"])
async def test_a_body_that_is_not_json_is_refused(api: Client, content_type: str) -> None:
    answer = await api.request("POST", MAPS, b"metadata: {name: a}", content_type=content_type)
    assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize("accept", ["application/yaml", "application/vnd.kubernetes.protobuf", "text/plain"])
async def test_an_answer_in_another_form_than_json_is_refused(api: Client, accept: str) -> None:
    answer = await api.request("GET", MAPS, accept=accept)
    assert (answer.code, answer.body["reason"]) == (406, "NotAcceptable")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"null", b"\xff", b"[" * 10_000, b'{"metadata":{"name":1}}']
)
async def test_a_body_that_cannot_be_read_is_a_bad_request(api: Client, body: bytes) -> None:
    answer = await api.request("POST", MAPS, body)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_a_resource_version_that_is_no_number_is_a_bad_request(api: Client) -> None:
    await api.create(MAPS, {"metadata": {"name": "a"}})
    for answer in (
        await api.request("PUT", f"{MAPS}/a", {"metadata": {"name": "a", "resourceVersion": "x"}}),
        await api.request("GET", f"{MAPS}?watch=1&resourceVersion=x"),
        await api.request("POST", MAPS, {"metadata": {"name": "b", "resourceVersion": "7"}}),
    ):
        assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_a_version_of_the_future_is_not_waited_for(api: Client) -> None:
    answer = await api.request("GET", f"{MAPS}?resourceVersion=999999")
    assert (answer.code, answer.body["reason"]) == (504, "Timeout")


async def test_a_write_without_changes_keeps_the_version(api: Client) -> None:
    made = await api.create(PODS, pod("a"))
    for content_type in (MERGE, STRATEGIC):
        answer = await api.request("PATCH", f"{PODS}/a", {"spec": {}}, content_type=content_type)
        assert answer.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_warning_names_what_was_dropped(api: Client) -> None:
    answer = await api.request("POST", MAPS, {"metadata": {"name": "a"}, "odd": 1})
    assert (answer.code, answer.warnings) == (201, ('299 - "unknown field \\"odd\\""',))
    assert "odd" not in answer.body


async def test_the_number_of_replicas_can_be_read_and_written_alone(api: Client) -> None:
    await api.create(DEFINITIONS, definition())
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"n": 2}}
    await api.create(THINGS, thing)
    scale = await api.get(f"{THINGS}/a/scale")
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 2)
    scale["spec"]["replicas"] = 3
    assert (await api.request("PUT", f"{THINGS}/a/scale", scale)).body["spec"]["replicas"] == 3
    stale = await api.request("PUT", f"{THINGS}/a/scale", scale)
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")
    await api.merge(f"{THINGS}/a/scale", {"spec": {"replicas": 4}})
    assert (await api.get(f"{THINGS}/a"))["spec"] == {"n": 4}
    wrong = await api.request("PATCH", f"{THINGS}/a/scale", {"spec": {"replicas": -1}}, content_type=MERGE)
    assert wrong.code == 422


async def test_metadata_alone_can_be_asked_for(api: Client) -> None:
    await api.create(MAPS, {"metadata": {"name": "a"}, "data": {"x": "y"}})
    form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = (await api.request("GET", MAPS, accept=form)).body
    assert listed["kind"] == "PartialObjectMetadataList"
    assert [(item["kind"], item["metadata"]["name"], "data" in item) for item in listed["items"]] == [
        ("PartialObjectMetadata", "a", False)
    ]
