"""Every bad manifest is refused, or ends in a sentence that says what to change."""

import pytest

from testbed.admin import Admin, path_of
from testbed.answer import Refused
from testbed.plane import ControlPlane
from tests.build import plan_of, with_status
from tests.manifests import good
from tests.manifests.bad import ACCEPTED_ROWS, REJECTED_ROWS, ROWS, Row
from tests.manifests.build import Manifest, resource_of
from trainmaster.core.condition import ACCEPTED
from trainmaster.core.plan import Create, Plan

each_rejected = pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in REJECTED_ROWS])
each_accepted = pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ACCEPTED_ROWS])
each_found_twice = pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.id) for row in REJECTED_ROWS if row.otherwise]
)
each_good = pytest.mark.parametrize("job", [pytest.param(job, id=job["metadata"]["name"]) for job in good.JOBS])


def test_every_row_has_an_id_of_its_own() -> None:
    ids = [row.id for row in ROWS]

    assert len(set(ids)) == len(ids)


@each_found_twice
def test_the_operator_finds_it_too_should_the_job_get_in(row: Row) -> None:
    plan = plan_of(row.manifest)

    assert row.otherwise in _complaint(plan)
    assert not plan.creates


@each_good
def test_the_operator_finds_nothing_wrong_with_a_good_job(job: Manifest) -> None:
    assert _complaint(plan_of(job)) == ""


# aiohttp warns of every body above 1 MiB; one of the rows has 5.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@each_rejected
async def test_the_api_server_refuses_it(row: Row, served: ControlPlane, namespace: str, admin: Admin) -> None:
    with pytest.raises(Refused) as refused:
        await admin.create(resource_of(row.manifest), row.manifest, namespace)

    assert row.says in refused.value.message


@each_accepted
async def test_the_api_server_accepts_it_and_a_condition_can_say_why_it_does_not_run(
    row: Row, served: ControlPlane, namespace: str, admin: Admin
) -> None:
    plan = plan_of(await admin.create(resource_of(row.manifest), row.manifest, namespace))

    said = [_complaint(plan), *[await _refusal(admin, create) for create in plan.creates]]

    assert any(row.says in sentence for sentence in said), said


@each_good
async def test_a_good_job_and_its_first_children_are_accepted(
    job: Manifest, served: ControlPlane, namespace: str, admin: Admin
) -> None:
    stored = await admin.create(resource_of(job), job, namespace)
    plan = plan_of(stored)
    if plan.status_first:  # ports, or a template, are on record before there are children
        plan = plan_of(with_status(stored, plan))

    first = plan.creates[:10]

    assert first
    assert [await _refusal(admin, create) for create in first] == [""] * len(first)


def _complaint(plan: Plan) -> str:
    """What the operator's own check finds wrong; empty when it finds nothing."""
    found = (plan.status or {}).get("conditions", ())
    return next((c["message"] for c in found if c["type"] == ACCEPTED and c["status"] == "False"), "")


async def _refusal(admin: Admin, create: Create) -> str:
    """Why the API server would not create it; empty when it would."""
    resource = create.resource
    name = f"{resource.api_version}/{resource.plural}" if resource.group else resource.plural
    path = path_of(name, create.key.namespace)
    try:
        await admin.request("POST", path, create.body, query={"dryRun": "All"})
    except Refused as refused:
        return refused.message
    return ""
