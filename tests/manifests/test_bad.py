"""Every bad manifest is refused, or ends in a sentence that says what to change."""

import pytest

from testbed.admin import Admin, path_of
from testbed.answer import Refused
from testbed.plane import ControlPlane
from tests.manifests import good
from tests.manifests.bad import ACCEPTED_ROWS, REJECTED_ROWS, ROWS, Row
from tests.manifests.build import Manifest
from tests.manifests.judge import complaint, first_plan, resource_of
from trainmaster.core.plan import Create

REJECTED = pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in REJECTED_ROWS])
ACCEPTED = pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ACCEPTED_ROWS])
SECOND = pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in REJECTED_ROWS if row.otherwise])
GOOD = pytest.mark.parametrize("job", [pytest.param(job, id=job["metadata"]["name"]) for job in good.JOBS])


def test_every_row_has_an_id_of_its_own() -> None:
    ids = [row.id for row in ROWS]

    assert len(set(ids)) == len(ids)


@SECOND
def test_the_operator_finds_it_too_should_the_job_get_in(row: Row) -> None:
    plan = first_plan(row.manifest)

    assert row.otherwise in complaint(plan)
    assert not plan.creates


@GOOD
def test_the_operator_finds_nothing_wrong_with_a_good_job(job: Manifest) -> None:
    assert complaint(first_plan(job)) == ""


@REJECTED
async def test_the_api_server_refuses_it(row: Row, served: ControlPlane, namespace: str, admin: Admin) -> None:
    with pytest.raises(Refused) as refused:
        await admin.create(resource_of(row.manifest), row.manifest, namespace)

    assert row.says in refused.value.message


@ACCEPTED
async def test_the_api_server_accepts_it_and_the_operator_will_say_why_it_does_not_run(
    row: Row, served: ControlPlane, namespace: str, admin: Admin
) -> None:
    job = await admin.create(resource_of(row.manifest), row.manifest, namespace)

    plan = first_plan(job)
    said = [complaint(plan), *[await _answer(admin, create) for create in plan.creates]]

    assert any(row.says in sentence for sentence in said), said


@GOOD
async def test_a_good_job_and_its_first_children_are_accepted(
    job: Manifest, served: ControlPlane, namespace: str, admin: Admin
) -> None:
    stored = await admin.create(resource_of(job), job, namespace)

    plan = first_plan(stored)

    assert plan.creates
    assert [await _answer(admin, create) for create in plan.creates[:10]] == [""] * len(plan.creates[:10])


async def _answer(admin: Admin, create: Create) -> str:
    """Why the API server would not create it; empty when it would."""
    path = path_of(create.resource.plural, create.key.namespace)
    try:
        await admin.request("POST", path, create.body, query={"dryRun": "All"})
    except Refused as refused:
        return refused.message
    return ""
