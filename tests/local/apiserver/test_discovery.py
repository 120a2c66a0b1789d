"""Discovery answers as a real kube-apiserver does for the same resources."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.local.apiserver.client import Client
from trainmaster.core.ids import Resource
from trainmaster.kinds import crd
from trainmaster.local.apiserver.kubectl.discovery import answer
from trainmaster.local.apiserver.objects.catalog import BUILT_IN, served_of
from trainmaster.local.apiserver.objects.resource import Served

Object = dict[str, Any]

SERVED = (*BUILT_IN, *(served for definition in crd.all_crds() for served in served_of(definition)))
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBECTL = f"{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def asked(path: str, accept: str = "application/json", served: Sequence[Served] = SERVED) -> Any:
    found = answer(path, accept, served)
    assert found is not None
    assert found[0] == 200
    return json.loads(found[2])


GROUPS = sorted({served.resource.group for served in SERVED} - {""})
VERSIONS = sorted({(served.resource.group, served.resource.version) for served in SERVED})


def _by_name(resources: list[Object], key: str = "name") -> dict[str, Object]:
    return {each[key]: each for each in resources}


def _comparable(entry: Object) -> Object:
    entry = {key: value for key, value in entry.items() if key not in ("storageVersionHash", "subresources")}
    return {**entry, "verbs": sorted(entry["verbs"])}


@pytest.mark.parametrize(("group", "version"), VERSIONS)
async def test_resources_are_described_as_by_a_real_api_server(group: str, version: str, real: Client) -> None:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    theirs = _by_name((await real.get(path))["resources"])

    mine = asked(path)

    assert mine["groupVersion"] == (f"{group}/{version}" if group else version)
    assert mine["resources"]
    for each in mine["resources"]:
        assert _comparable(each) == _comparable(theirs[each["name"]])


@pytest.mark.parametrize("group", GROUPS)
async def test_a_group_is_described_as_by_a_real_api_server(group: str, real: Client) -> None:
    assert asked(f"/apis/{group}") == await real.get(f"/apis/{group}")


async def test_all_groups_are_listed_as_by_a_real_api_server(real: Client) -> None:
    theirs = _by_name((await real.get("/apis"))["groups"])

    mine = asked("/apis")

    assert [each["name"] for each in mine["groups"]] == list(dict.fromkeys(each["name"] for each in mine["groups"]))
    assert {each["name"] for each in mine["groups"]} == set(GROUPS)
    assert all(each == theirs[each["name"]] for each in mine["groups"])


async def test_aggregated_discovery_has_the_same_content(real: Client) -> None:
    for path in ("/api", "/apis"):
        answered = (await real.request("GET", path, accept=KUBECTL)).body
        theirs = {each["metadata"].get("name", ""): each for each in answered["items"]}

        mine = asked(path, KUBECTL)

        assert {**mine, "items": []} == {**answered, "items": []}
        for group in mine["items"]:
            _compare_group(group, theirs[group["metadata"].get("name", "")])


def _compare_group(mine: Object, theirs: Object) -> None:
    versions = _by_name(theirs["versions"], "version")
    for version in mine["versions"]:
        resources = _by_name(versions[version["version"]]["resources"], "resource")
        for resource in version["resources"]:
            real = resources[resource["resource"]]
            real_parts = _by_name(real.get("subresources", []), "subresource")
            # Of built-in kinds the real one leaves out what it means by default.
            if resource["responseKind"]["kind"] in {served.resource.kind for served in BUILT_IN}:
                real = {**real, "responseKind": resource["responseKind"]}
                real_parts = {name: {**each, "responseKind": 0} for name, each in real_parts.items()}
            assert _comparable(resource) == _comparable(real)
            for part in resource.get("subresources", []):
                other = real_parts[part["subresource"]]
                kind = other["responseKind"] or part["responseKind"]
                assert _comparable(part) == _comparable({**other, "responseKind": kind})


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (KUBECTL, "v2"),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", "v2beta1"),
        ("application/json", ""),
        ("application/json, " + AGGREGATED, ""),
        ("*/*", ""),
        ("", ""),
        ("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", ""),
    ],
)
def test_a_client_gets_the_requested_form(accept: str, version: str) -> None:
    found = answer("/apis", accept, SERVED)

    assert found is not None
    wanted = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    assert found[1] == (wanted if version else "application/json")


def test_the_newest_stable_version_is_preferred() -> None:
    versions = ("v1alpha1", "v1", "odd", "v2beta1", "v2", "v1beta1", "v10")
    served = [Served(Resource("a.b", version, "cs", "C"), "c") for version in versions]

    group = asked("/apis/a.b", served=served)

    assert group["preferredVersion"]["version"] == "v10"
    assert [each["version"] for each in group["versions"]] == [
        "v10",
        "v2",
        "v1",
        "v2beta1",
        "v1beta1",
        "v1alpha1",
        "odd",
    ]


def test_the_version_is_supported_by_this_kubectl() -> None:
    assert asked("/version")["minor"] == "36"


@pytest.mark.parametrize("path", ["/apis/nope", "/openapi/v3/apis/nope/v1", "/openapi/v3/api/v2"])
def test_unserved_paths_are_not_found(path: str) -> None:
    found = answer(path, "application/json", SERVED)

    assert found is not None
    assert found[0] == 404


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/api/v2", "/api/v1/pods", "/apis/nope/v1", "/openapi", "/apis/a/b/c/d"]
)
def test_the_paths_of_others_are_left_to_them(path: str) -> None:
    assert answer(path, "application/json", SERVED) is None


def test_a_slash_at_the_end_does_not_matter() -> None:
    assert asked("/api/v1/") == asked("/api/v1")


# --- OpenAPI ---


def test_the_index_names_a_document_for_every_version() -> None:
    index = asked("/openapi/v3")

    assert set(index["paths"]) == {
        f"apis/{group}/{version}" if group else f"api/{version}" for group, version in VERSIONS
    }
    for path, entry in index["paths"].items():
        url, _, digest = entry["serverRelativeURL"].partition("?hash=")
        assert url == f"/openapi/v3/{path}"
        assert len(digest) == 32
        assert asked(url)["openapi"] == "3.0.0"


def test_the_address_of_a_document_changes_with_it() -> None:
    fewer = [served for served in SERVED if served.resource.plural != "secrets"]

    before, after = asked("/openapi/v3"), asked("/openapi/v3", served=fewer)

    changed = {path for path, entry in before["paths"].items() if entry != after["paths"][path]}
    assert changed == {"api/v1"}


@pytest.mark.parametrize("served", [pytest.param(served, id=str(served.resource)) for served in SERVED])
def test_kubectl_finds_out_that_the_server_validates_fields(served: Served) -> None:
    resource = served.resource
    path = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"

    operations = [entry["patch"] for entry in asked(f"/openapi/v3{path}")["paths"].values()]

    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    mine = next(each for each in operations if each["x-kubernetes-group-version-kind"] == gvk)
    assert {"dryRun", "fieldValidation"} <= {each["name"] for each in mine["parameters"]}


@pytest.mark.parametrize(("group", "version"), VERSIONS)
def test_every_reference_of_a_document_leads_somewhere(group: str, version: str) -> None:
    document = asked(f"/openapi/v3/apis/{group}/{version}" if group else f"/openapi/v3/api/{version}")

    names = set(document["components"]["schemas"])

    assert set(_references(document)) <= {f"#/components/schemas/{name}" for name in names}


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in _references(each)]
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for each in value.values() for found in _references(each)]
    return []


def test_openapi_v2_has_both_media_types() -> None:
    found = answer("/openapi/v2", PROTOBUF, SERVED)

    assert asked("/openapi/v2")["swagger"] == "2.0"
    assert found is not None
    assert "protobuf" in found[1]
    assert found[2].startswith(b"\x0a\x032.0")
