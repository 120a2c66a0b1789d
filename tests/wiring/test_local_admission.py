"""Local mode and a cluster with our webhook say the same of a job: errors, defaults and warnings."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed.certificate import Authority
from tests.build import kind_of
from tests.local.apiserver.client import MERGE, Client
from tests.manifests import good
from tests.manifests.bad import OF_EITHER_VERSION, VERSIONS, Row
from tests.manifests.build import Manifest, agconfig, container, coordinated, dijob, resource_of, template
from tests.manifests.rules import BROKEN, Broken
from tests.webhook.build import a_request
from trainmaster.kinds.base import Settings
from trainmaster.kinds.crd import all_crds
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.local.apiserver.http.server import ApiOptions, serve_api
from trainmaster.webhook.verdict import verdict
from trainmaster.wiring.local_admission import local_admission

TOKEN = "token"
RUN = container(command=["run"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def api(authority: Authority, tmp_path: Path) -> AsyncIterator[Client]:
    pair = authority.server()
    options = ApiOptions(
        database=":memory:",
        token=TOKEN,
        certificate=pair.certificate,
        key=pair.key,
        definitions=all_crds(),
        admission=local_admission(all_resource_kinds(Settings())),
    )
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        yield client


def path_of(job: Manifest) -> str:
    group, version, plural = resource_of(job).split("/")
    return f"/apis/{group}/{version}/namespaces/default/{plural}"


@pytest.mark.parametrize("broken", [pytest.param(broken, id=broken.id) for broken in BROKEN])
async def test_what_a_rule_refuses_on_a_cluster_is_refused(broken: Broken, api: Client) -> None:
    path, name = path_of(broken.new), broken.new["metadata"]["name"]
    if broken.old:
        await api.create(path, broken.old)
        await api.merge(f"{path}/{name}/status", {"status": broken.old.get("status", {})})
        edit = {"spec": broken.new["spec"]}
        answer = await api.request("PATCH", f"{path}/{name}", edit, content_type=MERGE)
    else:
        answer = await api.request("POST", path, broken.new)

    causes = answer.body["details"]["causes"]
    errors = verdict(kind_of(broken.new), a_request(broken.new, old=broken.old)).errors
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in causes] == [error.partition(": ")[0] for error in errors]
    assert any(broken.says in cause["message"] for cause in causes)
    assert broken.says in answer.body["message"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in OF_EITHER_VERSION])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_bad_job_is_refused_under_both_versions(row: Row, version: str, api: Client) -> None:
    job = row.manifest | {"apiVersion": version}

    answer = await api.request("POST", path_of(job), job)

    assert answer.code == 422
    assert row.says in answer.body["message"] or row.otherwise in answer.body["message"]
    assert answer.body["details"]["causes"][0]["field"].startswith(("spec", "metadata.name"))


@pytest.mark.parametrize("job", [pytest.param(job, id=job["metadata"]["name"]) for job in good.JOBS])
async def test_a_good_job_is_stored(job: Manifest, api: Client) -> None:
    await api.create(path_of(job), job)


async def test_defaults_are_those_of_the_webhook(api: Client) -> None:
    stored = await api.create(path_of(dijob()), dijob())
    chosen = await api.create(path_of(dijob()), dijob("chosen", cleanPodPolicy="All"))

    assert (stored["spec"]["cleanPodPolicy"], chosen["spec"]["cleanPodPolicy"]) == ("Running", "All")


async def test_warnings_are_those_of_the_webhook(api: Client) -> None:
    odd = coordinated(template(RUN), collector={"template": template(RUN)})

    answer = await api.request("POST", path_of(odd), odd)

    assert answer.code == 201
    said = "spec.learner: is missing beside spec.collector; a learner that the job asks for has no template"
    assert answer.warnings == (f'299 - "{said}"',)


async def test_an_object_that_is_no_job_is_stored_as_it_is(api: Client) -> None:
    config = agconfig("default")

    stored = await api.create("/apis/nervex.sensetime.com/v1alpha1/namespaces/default/aggregatorconfigs", config)

    assert stored["spec"] == config["spec"]
