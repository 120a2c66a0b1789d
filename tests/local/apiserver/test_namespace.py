"""Namespaces and definitions go with what is in them."""

from typing import Any

from tests.local.apiserver.client import Client, until

NAMESPACES = "/api/v1/namespaces"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"


def definition(*versions: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": name, "served": True, "storage": index == 0, "schema": schema}
                for index, name in enumerate(versions or ("v1",))
            ],
        },
    }


def thing(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name, **meta}, "spec": {"x": 1}}


async def test_the_initial_namespaces_exist(api: Client) -> None:
    found = await until(api, NAMESPACES, bool)
    assert set(found) == {"default", "kube-system", "kube-public", "kube-node-lease"}


async def test_a_namespace_is_deleted_with_its_objects(api: Client) -> None:
    await api.create(NAMESPACES, {"metadata": {"name": "a"}})
    for kind in ("configmaps", "secrets"):
        await api.create(f"{NAMESPACES}/a/{kind}", {"metadata": {"name": "x"}})
    deleted = await api.delete(f"{NAMESPACES}/a")
    assert deleted["status"]["phase"] == "Terminating"
    await until(api, NAMESPACES, lambda found: "a" not in found)
    assert (await api.get("/api/v1/configmaps"))["items"] == []


async def test_a_namespace_waits_for_finalizers_of_its_content(api: Client) -> None:
    await api.create(NAMESPACES, {"metadata": {"name": "a"}})
    maps = f"{NAMESPACES}/a/configmaps"
    await api.create(maps, {"metadata": {"name": "x", "finalizers": ["example.com/hold"]}})
    await api.delete(f"{NAMESPACES}/a")
    await until(api, maps, lambda found: "deletionTimestamp" in found["x"]["metadata"])
    refused = await api.request("POST", maps, {"metadata": {"name": "y"}})
    assert (refused.code, refused.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    await api.merge(f"{maps}/x", {"metadata": {"finalizers": None}})
    await until(api, NAMESPACES, lambda found: "a" not in found)


async def test_a_definition_is_served_at_once_in_all_its_versions(api: Client) -> None:
    made = await api.create(DEFINITIONS, definition("v1", "v2"))
    conditions = {each["type"]: each["status"] for each in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert made["status"]["storedVersions"] == ["v1"]
    await api.create(THINGS, thing("a"))
    other = await api.get(f"{THINGS.replace('/v1/', '/v2/')}/a")
    assert (other["apiVersion"], other["spec"]) == ("example.com/v2", {"x": 1})


async def test_a_definition_is_deleted_after_its_objects(api: Client) -> None:
    await api.create(DEFINITIONS, definition())
    await api.create(THINGS, thing("a"))
    await api.create(THINGS, thing("held", finalizers=["example.com/hold"]))
    await api.delete(f"{DEFINITIONS}/things.example.com")
    await until(api, THINGS, lambda found: set(found) == {"held"})
    await api.merge(f"{THINGS}/held", {"metadata": {"finalizers": None}})
    await until(api, DEFINITIONS, lambda found: "things.example.com" not in found)
    assert (await api.request("GET", THINGS)).code == 404


async def test_a_definition_that_cannot_be_served_is_refused(api: Client) -> None:
    wrong = definition()
    wrong["metadata"]["name"] = "other.example.com"
    refused = await api.request("POST", DEFINITIONS, wrong)
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, "metadata.name")
