"""A pod gets the one node that is ready."""

from typing import Any

from tests.local.apiserver.client import Client, until

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


def node(name: str, *, ready: str = "True", unschedulable: bool = False) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name}, "spec": {"unschedulable": unschedulable}, "status": status}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def is_bound(name: str) -> Any:
    return lambda found: found[name]["spec"].get("nodeName")


async def test_a_new_pod_is_bound_and_gets_the_condition(api: Client) -> None:
    await api.create(NODES, node("n1"))
    await api.create(PODS, pod("a"))
    bound = (await until(api, PODS, is_bound("a")))["a"]
    assert bound["spec"]["nodeName"] == "n1"
    scheduled = bound["status"]["conditions"][0]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")


async def test_pods_wait_for_a_node(api: Client) -> None:
    await api.create(PODS, pod("a"))
    await api.create(NODES, node("n1", ready="False"))
    await api.merge(f"{NODES}/n1/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    await until(api, PODS, is_bound("a"))


async def test_a_cordoned_node_gets_no_pods_until_it_is_uncordoned(api: Client) -> None:
    await api.create(NODES, node("n1", unschedulable=True))
    await api.create(PODS, pod("a"))
    await api.merge(f"{NODES}/n1", {"spec": {"unschedulable": None}})
    await until(api, PODS, is_bound("a"))


async def test_a_pod_with_a_gate_waits(api: Client) -> None:
    await api.create(NODES, node("n1"))
    await api.create(PODS, pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
    await api.create(PODS, pod("later"))
    found = await until(api, PODS, is_bound("later"))
    assert "nodeName" not in found["gated"]["spec"]
