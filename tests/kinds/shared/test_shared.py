"""One resource, two served versions, two kinds: the shape of the spec decides of which kind a job is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from testbed.admin import eventually
from testbed.certificate import Authority
from testbed.plane import ControlPlane
from tests.build import Json, a_container, a_template
from tests.kinds.shared.kinds import DEFINITION, FIRST, SECOND, FirstKind, SecondKind, pair
from tests.webhook.test_server import asking, served
from trainmaster.core.errors import Invalid
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.kinds.base import Settings
from trainmaster.kinds.crd import crd
from trainmaster.kinds.resource_kinds import ResourceKinds, by_resource
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Config, Material, Tls, User
from trainmaster.kube.kubeconfig import load_config
from trainmaster.local.apiserver.http.server import ApiOptions, serve_api
from trainmaster.webhook.server import serve_admission
from trainmaster.wiring.local_admission import local_admission
from trainmaster.wiring.manager import build_manager, chosen

GOOD = a_template(a_container("main"))
SHAPES = {"first": {"template": GOOD, "replicas": 2}, "second": {"task": {"template": GOOD, "replicas": 2}}}
BAD: dict[str, Json] = {
    "first": {"template": {"spec": {"containers": []}}},
    "second": {"task": {"template": {"spec": {"containers": []}}}},
}
NEITHER = {"spec": {"replicas": 2}}


def a_job(resource: Resource, shape: str, namespace: str = "default") -> Json:
    metadata = {"name": f"{shape}-{resource.version}", "namespace": namespace}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": SHAPES[shape],
    }


# --- without a cluster ---


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        pytest.param({"spec": SHAPES["first"]}, FirstKind, id="the first shape"),
        pytest.param({"spec": SHAPES["second"]}, SecondKind, id="the second shape"),
        pytest.param(NEITHER, FirstKind, id="neither shape"),
        pytest.param({"spec": None}, FirstKind, id="no spec"),
        pytest.param({}, FirstKind, id="nothing"),
    ],
)
def test_the_fields_of_the_spec_decide_the_kind(body: Json, kind: type) -> None:
    assert type(pair().of(msgspec.json.encode(body))) is kind


def test_kinds_that_share_a_resource_have_one_controller() -> None:
    first, second = pair().kinds

    assert by_resource([first, second]) == ((first, second),)


def test_kinds_of_two_resources_are_no_pair() -> None:
    class Other(FirstKind):
        resource = SECOND

    with pytest.raises(ValueError, match="in one version"):
        ResourceKinds(FirstKind(Settings()), Other(Settings()))


@pytest.mark.parametrize("name", ["PairJob", "firstjob", "secondjob"])
def test_kinds_that_share_a_resource_are_enabled_together(name: str) -> None:
    both = pair()

    assert chosen([both], [name]) == [both]


def test_all_versions_are_served_and_the_first_is_stored() -> None:
    first, second = crd(DEFINITION)["spec"]["versions"]

    assert [(v["name"], v["served"], v["storage"]) for v in (first, second)] == [
        ("v1alpha1", True, True),
        ("v2alpha1", True, False),
    ]
    assert first["schema"] == second["schema"]
    assert [c["name"] for c in second["additionalPrinterColumns"]] == ["State", "Age"]


@pytest.mark.parametrize("version", ["v1alpha1", "v2alpha1"])
@pytest.mark.parametrize("path", ["v1alpha1", "v2alpha1"])
@pytest.mark.parametrize("spec", BAD.values(), ids=BAD.keys())
async def test_the_webhook_reviews_both_shapes_in_both_versions(spec: Json, path: str, version: str) -> None:
    job = {"metadata": {"name": "job", "namespace": "ml"}, "spec": spec}
    request = {
        "uid": "1",
        "kind": {"group": FIRST.group, "version": version, "kind": FIRST.kind},
        "operation": "CREATE",
        "object": job,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    async with serve_admission("127.0.0.1:0", [pair()], served().context) as port, asking(port) as client:
        answer = await client.ask(f"/validate-pair-example-{path}-pairjob", review)

    assert not answer["allowed"]
    assert "spec.template.spec.containers" in answer["status"]["message"]


# --- on an API server ---


@asynccontextmanager
async def operating(cluster: KubeCluster) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = asyncio.ensure_future(build_manager(cluster, [pair()]).run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def check_all(cluster: KubeCluster, namespace: str) -> None:
    """Jobs of either shape, created under either path, are driven by their kind, and read under either path."""
    for shape in SHAPES:
        for path in (FIRST, SECOND):
            body = a_job(path, shape, namespace)
            await cluster.create(path, namespace, msgspec.json.encode(body))
    for shape, noun in (("first", "FirstJob"), ("second", "SecondJob")):
        for path in (FIRST, SECOND):
            await eventually(partial(check, cluster, namespace, shape, noun, path))


async def check(cluster: KubeCluster, namespace: str, shape: str, noun: str, path: Resource) -> None:
    name = f"{shape}-{path.version}"
    for read in (FIRST, SECOND):
        job = msgspec.json.decode(await cluster.get(read, Key(namespace, name)))
        assert job["apiVersion"] == read.api_version
        assert job["spec"] == SHAPES[shape]
        assert [c["reason"] for c in job.get("status", {}).get("conditions", ())] == [f"{noun}Created"]
    for index in range(2):
        pod = msgspec.json.decode(await cluster.get(POD, Key(namespace, f"{name}-worker-{index}")))
        assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


async def test_local_mode_serves_both_versions_and_drives_both_shapes(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair_of_files = authority.server()
    options = ApiOptions(
        database=":memory:",
        token="token",
        certificate=pair_of_files.certificate,
        key=pair_of_files.key,
        definitions=(crd(DEFINITION),),
        admission=local_admission([pair()]),
    )
    async with serve_api(options) as server:
        tls = Tls(ca=Material("ca", path=authority.ca_file))
        config = Config(server=server.url, source="test", tls=tls, user=User(token=Material("token", data=b"token")))
        async with KubeCluster(config) as cluster, operating(cluster):
            await check_all(cluster, "default")
            for path in (FIRST, SECOND):
                for shape in SHAPES:
                    bad = a_job(path, shape) | {"metadata": {"name": "a" * 60}}
                    with pytest.raises(Invalid, match=r"metadata\.name.*63"):
                        await cluster.create(path, "default", msgspec.json.encode(bad))


async def test_a_real_api_server_serves_both_versions_and_both_shapes_are_driven(
    plane: ControlPlane, namespace: str
) -> None:
    plane.apply(msgspec.json.encode(crd(DEFINITION)).decode())
    async with (
        KubeCluster(load_config(kubeconfig=str(plane.kubeconfig("admin")))) as cluster,
        operating(cluster),
    ):
        await check_all(cluster, namespace)
