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


# --- GPUs ---


def machine(gpus: int) -> dict[str, Any]:
    body = node("n1")
    return {**body, "status": {**body["status"], "allocatable": {"nvidia.com/gpu": str(gpus)}}}


def training(name: str, gpus: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return pod(name, containers=[container])


def waits(name: str) -> Any:
    return lambda found: [
        condition["message"]
        for condition in found[name].get("status", {}).get("conditions", [])
        if (condition["type"], condition["status"], condition.get("reason"))
        == ("PodScheduled", "False", "Unschedulable")
    ]


async def test_a_pod_waits_for_gpus_and_says_so(api: Client) -> None:
    await api.create(NODES, machine(2))
    await api.create(PODS, training("a", 1))
    await until(api, PODS, is_bound("a"))
    await api.create(PODS, training("b", 2))
    await api.create(PODS, training("c", 1))  # it fits beside the first
    found = await until(api, PODS, lambda found: is_bound("c")(found) and waits("b")(found))

    assert waits("b")(found) == [
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu: the pod requests 2, and 1 of 2 are free"
    ]
    assert "nodeName" not in found["b"]["spec"]


async def test_pods_that_ended_or_were_deleted_free_their_gpus(api: Client) -> None:
    await api.create(NODES, machine(2))
    for name in "ab":
        await api.create(PODS, training(name, 1))
        await until(api, PODS, is_bound(name))
    await api.create(PODS, training("c", 2))
    await until(api, PODS, waits("c"))
    await api.merge(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    await api.delete(f"{PODS}/b?gracePeriodSeconds=0")
    found = await until(api, PODS, is_bound("c"))

    assert [each["status"] for each in found["c"]["status"]["conditions"]] == ["True"]


async def test_a_pod_waits_for_a_node_that_gets_gpus(api: Client) -> None:
    await api.create(NODES, node("n1"))
    await api.create(PODS, training("a", 1))
    found = await until(api, PODS, waits("a"))
    assert waits("a")(found)[0].endswith("the pod requests 1, and this machine has none")
    await api.merge(f"{NODES}/n1/status", {"status": {"allocatable": {"nvidia.com/gpu": "1"}}})
    await until(api, PODS, is_bound("a"))
