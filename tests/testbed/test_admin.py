"""The tests' client says what the API server says, and reports pods as a kubelet does."""

from pathlib import Path

import pytest

from testbed.admin import Admin, path_of
from testbed.answer import Object, Refused
from tests.kube.certificate import Authority
from tests.kube.serve import Refusing


def pod_body(name: str, *containers: str, **spec: object) -> Object:
    listed = [{"name": container, "image": "none"} for container in containers or ("main",)]
    return {"metadata": {"name": name}, "spec": {"containers": listed, "restartPolicy": "Never", **spec}}


@pytest.mark.parametrize(
    ("path", "resource", "namespace", "name", "subresource"),
    [
        pytest.param("/api/v1/nodes", "nodes", None, None, "", id="core, not namespaced"),
        pytest.param("/api/v1/namespaces/a/pods/p/status", "pods", "a", "p", "status", id="core, subresource"),
        pytest.param("/api/v1/namespaces/a/pods", "v1/pods", "a", None, "", id="core, version said"),
        pytest.param("/apis/batch/v1/namespaces/a/jobs/j", "batch/v1/jobs", "a", "j", "", id="group and version"),
    ],
)
def test_a_resource_is_found_at_its_path(
    path: str, resource: str, namespace: str | None, name: str | None, subresource: str
) -> None:
    assert path_of(resource, namespace, name, subresource) == path


async def test_an_object_is_created_patched_replaced_listed_and_deleted(admin: Admin, namespace: str) -> None:
    made = await admin.create("configmaps", {"metadata": {"name": "c", "labels": {"a": "1"}}, "data": {}}, namespace)
    patched = await admin.patch("configmaps", namespace, "c", {"data": {"x": "1"}})
    replaced = await admin.replace("configmaps", patched | {"data": {"x": "2"}})

    assert made["metadata"]["uid"] == replaced["metadata"]["uid"]
    assert [item["data"] for item in await admin.list("configmaps", namespace, labels="a=1")] == [{"x": "2"}]
    assert await admin.list("configmaps", namespace, labels="a=2") == []

    await admin.delete("configmaps", namespace, "c")
    assert await admin.find("configmaps", namespace, "c") is None


async def test_a_refusal_has_the_code_and_reason_of_the_server(admin: Admin, namespace: str) -> None:
    with pytest.raises(Refused) as refused:
        await admin.get("pods", namespace, "nobody")

    assert (refused.value.code, refused.value.reason) == (404, "NotFound")


# aiohttp warns of every body above 1 MiB.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_no_connection_outlives_the_client_when_the_server_refuses_in_the_middle_of_a_body(
    tmp_path: Path,
) -> None:
    authority = Authority("test")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    server = Refusing(authority.serving(tmp_path, names=("127.0.0.1",)))
    await server.start()

    async with Admin(server.url, "token", tmp_path / "ca.pem") as admin:
        with pytest.raises(Refused) as refused:
            await admin.create("pods", {"x": "x" * 20_000_000}, "ml")

    assert refused.value.code == 413
    assert server.callers() == []
    await server.stop()


async def test_waiting_ends_with_how_the_object_is(admin: Admin, namespace: str) -> None:
    await admin.create("pods", pod_body("waits"), namespace)

    with pytest.raises(AssertionError, match=r'waits .*"phase": "Pending"'):
        await admin.wait_for("pods", namespace, "waits", lambda pod: pod["status"]["hostIP"] == "10.0.0.9", timeout=0.1)


async def test_a_pod_is_reported_running_on_a_node(admin: Admin, namespace: str) -> None:
    await admin.create("pods", pod_body("p", "one", "two"), namespace)

    await admin.set_pod(namespace, "p", node="n7", ip="10.0.0.7")

    pod = await admin.get("pods", namespace, "p")
    assert pod["spec"]["nodeName"] == "n7"
    assert (pod["status"]["phase"], pod["status"]["podIP"]) == ("Running", "10.0.0.7")
    assert all("running" in status["state"] for status in pod["status"]["containerStatuses"])
    assert {"type": "Ready", "status": "True"}.items() <= _condition(pod, "Ready").items()


async def test_a_pod_fails_with_the_exit_codes_of_its_containers(admin: Admin, namespace: str) -> None:
    await admin.create("pods", pod_body("p", "one", "two"), namespace)
    await admin.set_pod(namespace, "p")

    failed = await admin.set_pod(
        namespace, "p", phase="Failed", containers=[0, 137], reason="Evicted", message="no room"
    )

    codes = [status["state"]["terminated"]["exitCode"] for status in failed["status"]["containerStatuses"]]
    assert codes == [0, 137]
    assert (failed["status"]["reason"], failed["status"]["message"]) == ("Evicted", "no room")
    assert _condition(failed, "Ready")["status"] == "False"


async def test_a_pending_pod_says_why_its_container_waits(admin: Admin, namespace: str) -> None:
    await admin.create("pods", pod_body("p", initContainers=[{"name": "first", "image": "none"}]), namespace)

    pod = await admin.set_pod(
        namespace, "p", phase="Pending", containers=["PodInitializing"], init_containers=["ErrImagePull"]
    )

    assert pod["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert pod["status"]["initContainerStatuses"][0]["state"] == {"waiting": {"reason": "ErrImagePull"}}
    assert "podIP" not in pod["status"]


async def test_a_bound_pod_goes_when_its_kubelet_says_so(admin: Admin, namespace: str) -> None:
    await admin.create("pods", pod_body("p"), namespace)
    await admin.set_pod(namespace, "p")

    await admin.delete("pods", namespace, "p")
    lingering = await admin.get("pods", namespace, "p")
    await admin.delete("pods", namespace, "p", grace=0)

    assert "deletionTimestamp" in lingering["metadata"]
    await admin.wait_gone("pods", namespace, "p")


async def test_a_list_is_waited_for(admin: Admin, namespace: str) -> None:
    for index in range(3):
        await admin.create("pods", pod_body(f"p-{index}"), namespace)

    pods = await admin.wait_list("pods", namespace, lambda pods: len(pods) == 3)

    assert sorted(pod["metadata"]["name"] for pod in pods) == ["p-0", "p-1", "p-2"]


def _condition(pod: Object, kind: str) -> Object:
    found: Object = next(each for each in pod["status"]["conditions"] if each["type"] == kind)
    return found
