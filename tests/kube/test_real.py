"""trainmaster.kube against a real kube-apiserver: the answers that the other tests take for granted."""

import msgspec
import pytest

from testbed.operator import install
from testbed.plane import ControlPlane
from tests.kube.conftest import Connect
from tests.manifests.build import aitrainingjob, template
from tests.odd import MARK, deep, with_value
from trainmaster.core.errors import AlreadyExists, Conflict, Forbidden, Gone, Invalid, NotFound, TooLarge, Unauthorized
from trainmaster.core.ids import LEASE, POD, Key
from trainmaster.core.nesting import without_spec
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Config, Material, User
from trainmaster.kube.kubeconfig import load_config

AITRAININGJOB = AITrainingJobKind.resource


def a_pod(name: str) -> bytes:
    spec = {"containers": [{"name": "main", "image": "none"}]}
    return msgspec.json.encode({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})


@pytest.fixture
async def cluster(plane: ControlPlane, connect: Connect) -> KubeCluster:
    return await connect(load_config(kubeconfig=str(plane.kubeconfig())))


async def test_pod_lives_from_create_to_delete(cluster: KubeCluster, namespace: str) -> None:
    key = Key(namespace, "a")

    created = await cluster.create(POD, namespace, a_pod("a"))
    patch = {"metadata": {"uid": created.uid, "resourceVersion": str(created.resource_version), "labels": {"x": "y"}}}
    patched = await cluster.patch(POD, key, msgspec.json.encode(patch))
    status = await cluster.patch(POD, key, b'{"status":{"phase":"Running"}}', subresource="status")

    assert created.uid == patched.uid == status.uid
    assert created.resource_version < patched.resource_version < status.resource_version
    stored = msgspec.json.decode(await cluster.get(POD, key))
    assert (stored["metadata"]["labels"]["x"], stored["status"]["phase"]) == ("y", "Running")
    assert {entry["manager"] for entry in stored["metadata"]["managedFields"]} == {"trainmaster"}
    await cluster.delete(POD, key, uid=created.uid, grace=0)
    with pytest.raises(NotFound):
        await cluster.get(POD, key)


async def test_lease_is_replaced_only_in_the_version_that_was_read(cluster: KubeCluster, namespace: str) -> None:
    key = Key(namespace, "leader")
    await cluster.create(LEASE, namespace, b'{"metadata":{"name":"leader"}}')
    read = await cluster.get(LEASE, key)

    await cluster.replace(LEASE, key, read.replace(b'"spec":{}', b'"spec":{"holderIdentity":"me"}'))

    with pytest.raises(Conflict):
        await cluster.replace(LEASE, key, read.replace(b'"spec":{}', b'"spec":{"holderIdentity":"other"}'))


async def test_a_large_deep_job_is_written_as_its_codec_expects(plane: ControlPlane, cluster: KubeCluster) -> None:
    """Metadata and status are found without a scan: the order of the fields is that of the API server."""
    install(plane)
    body = with_value(aitrainingjob("deep", replicaSpecs={"t": {"template": template(x=MARK)}}), deep(9000))
    created = await cluster.create(AITRAININGJOB, "default", body)
    await cluster.patch(AITRAININGJOB, Key("default", "deep"), b'{"status":{"phase":"Running"}}', subresource="status")
    stored = without_spec(await cluster.get(AITRAININGJOB, Key("default", "deep")))
    await cluster.delete(AITRAININGJOB, Key("default", "deep"), uid=created.uid)

    found = msgspec.json.decode(stored)
    assert (found["metadata"]["name"], found["metadata"]["uid"]) == ("deep", created.uid)
    assert "managedFields" not in found["metadata"]
    assert (found["spec"], found["status"]["phase"]) == ({}, "Running")


async def test_refusals_have_their_meaning(cluster: KubeCluster, namespace: str) -> None:
    await cluster.create(POD, namespace, a_pod("a"))

    with pytest.raises(AlreadyExists, match=rf'^create pods {namespace}/a: pods "a" already exists \(409'):
        await cluster.create(POD, namespace, a_pod("a"))
    with pytest.raises(Conflict, match=rf"^delete pods {namespace}/a: "):
        await cluster.delete(POD, Key(namespace, "a"), uid="another")
    with pytest.raises(Conflict):
        await cluster.patch(POD, Key(namespace, "a"), b'{"metadata":{"resourceVersion":"1"}}')
    with pytest.raises(Invalid):
        await cluster.create(POD, namespace, b'{"metadata":{"name":"b"},"spec":{"containers":[]}}')
    with pytest.raises(Invalid):
        await cluster.create(POD, namespace, b"no json")
    with pytest.raises(NotFound):
        await cluster.get(POD, Key(namespace, "b c/d"))


async def test_pages_follow_each_other(cluster: KubeCluster, namespace: str) -> None:
    for name in ("a", "b", "c"):
        await cluster.create(POD, namespace, a_pod(name))

    first = msgspec.json.decode(await cluster.list(POD, namespace=namespace, limit=2))
    cursor = first["metadata"]["continue"]
    second = msgspec.json.decode(await cluster.list(POD, namespace=namespace, limit=2, cursor=cursor))
    chosen = msgspec.json.decode(await cluster.list(POD, namespace=namespace, selector="app in (a, c)"))

    assert [[item["metadata"]["name"] for item in page["items"]] for page in (first, second, chosen)] == [
        ["a", "b"],
        ["c"],
        ["a", "c"],
    ]
    with pytest.raises((Gone, Invalid)):
        await cluster.list(POD, namespace=namespace, limit=2, cursor="nonsense")


async def test_the_version_of_a_resource_is_never_lower_than_one_that_was_seen(
    cluster: KubeCluster, namespace: str
) -> None:
    created = await cluster.create(POD, namespace, a_pod("a"))
    page = msgspec.json.decode(await cluster.list(POD, namespace=namespace))

    assert created.resource_version <= int(page["metadata"]["resourceVersion"]) <= await cluster.version(POD)


async def test_a_page_that_is_too_long_is_not_read(cluster: KubeCluster, namespace: str) -> None:
    for name in ("a", "b", "c"):
        await cluster.create(POD, namespace, a_pod(name))
    one = len(await cluster.list(POD, namespace=namespace, limit=1))

    with pytest.raises(TooLarge):
        await cluster.list(POD, namespace=namespace, limit=3, max_bytes=2 * one)


async def test_watch_shows_changes(cluster: KubeCluster, namespace: str) -> None:
    page = msgspec.json.decode(await cluster.list(POD, namespace=namespace))
    version = page["metadata"]["resourceVersion"]
    pod = msgspec.json.decode(a_pod("a"))
    pod["metadata"]["annotations"] = {"odd": "a\u0085b\u2028c"}

    async with cluster.watch(POD, namespace=namespace, resource_version=version, timeout=60) as lines:
        created = await cluster.create(POD, namespace, msgspec.json.encode(pod))
        added = msgspec.json.decode(await anext(lines))
        await cluster.delete(POD, Key(namespace, "a"), uid=created.uid, grace=0)
        kinds = [added["type"]]
        while kinds[-1] != "DELETED":
            kinds.append(msgspec.json.decode(await anext(lines))["type"])

    assert kinds == ["ADDED", "MODIFIED", "DELETED"]
    assert added["object"]["metadata"]["annotations"] == {"odd": "a\u0085b\u2028c"}
    assert int(added["object"]["metadata"]["resourceVersion"]) == created.resource_version


async def test_watch_ends_at_the_requested_timeout(cluster: KubeCluster, namespace: str) -> None:
    page = msgspec.json.decode(await cluster.list(POD, namespace=namespace))
    version = page["metadata"]["resourceVersion"]

    async with cluster.watch(POD, namespace=namespace, resource_version=version, timeout=1) as lines:
        kinds = {msgspec.json.decode(line)["type"] async for line in lines}

    assert kinds <= {"BOOKMARK"}


async def test_permissions_depend_on_the_user(plane: ControlPlane, connect: Connect, namespace: str) -> None:
    def as_user(token: str) -> Config:
        config = load_config(kubeconfig=str(plane.kubeconfig()))
        return Config(
            server=config.server,
            source="test",
            tls=config.tls,
            user=User(token=Material("token", data=token.encode())),
        )

    anonymous = await connect(as_user("nonsense"))
    stranger = await connect(as_user(plane.token("stranger")))

    with pytest.raises(Unauthorized, match=r"\(401 Unauthorized\)"):
        await anonymous.list(POD, namespace=namespace)
    with pytest.raises(Forbidden, match=r"\(403 Forbidden\)"):
        await stranger.list(POD, namespace="kube-system")
