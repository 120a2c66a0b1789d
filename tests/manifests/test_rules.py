"""The CEL rules of our definitions and our own validation refuse the same, at the same fields."""

import random
import re

import pytest

from testbed.admin import Admin
from testbed.answer import Refused
from testbed.plane import ControlPlane
from tests.build import kind_of
from tests.manifests.build import Manifest, aitrainingjob, replica, resource_of
from tests.manifests.rules import BROKEN, RULES, Broken
from tests.webhook.build import a_request
from trainmaster.webhook.verdict import verdict

each_broken = pytest.mark.parametrize("broken", [pytest.param(broken, id=broken.id) for broken in BROKEN])


def test_every_rule_is_broken_by_one_row() -> None:
    found = [rule for broken in BROKEN for rule in broken.rules]

    assert sorted(found) == sorted(RULES)


@each_broken
def test_our_review_refuses_it_at_the_field_of_the_rule(broken: Broken) -> None:
    (rule,) = broken.rules

    errors = verdict(kind_of(broken.new), a_request(broken.new, old=broken.old)).errors

    # Validation can name a field below the one that a rule can name.
    said = [error for error in errors if re.match(rf"{_pattern(rule.field)}(\.[^:]*|\[[^:]*)?: ", error)]
    assert any(broken.says in error for error in said), errors


@each_broken
async def test_the_api_server_refuses_it_by_the_rule(
    broken: Broken, served: ControlPlane, namespace: str, admin: Admin
) -> None:
    (rule,) = broken.rules
    if broken.old:
        await _create(admin, broken.old, namespace)

    with pytest.raises(Refused) as refused:
        await (_edit if broken.old else _create)(admin, broken.new, namespace)

    said = re.findall(rf"{_pattern(rule.field)}: Invalid value: (.*)", refused.value.message)
    assert any(broken.says in sentence for sentence in said), refused.value.message


async def _create(admin: Admin, job: Manifest, namespace: str) -> None:
    await admin.create(resource_of(job), job, namespace)
    if "status" in job:
        await admin.set_status(resource_of(job), namespace, job["metadata"]["name"], job["status"])


async def _edit(admin: Admin, job: Manifest, namespace: str) -> None:
    await admin.patch(resource_of(job), namespace, job["metadata"]["name"], {"spec": job["spec"]})


def _pattern(field: str) -> str:
    """A key of a map stands after a dot in our errors, and in brackets in those of rules."""
    return re.escape(field).replace(r"\.\*", r"(?:\.[^.]+|\[[^\]]+\])")


JOBS = 40


async def test_rule_and_validation_count_the_replicas_of_an_aitrainingjob_alike(
    served: ControlPlane, namespace: str, admin: Admin
) -> None:
    chance = random.Random(15)
    sums = set()
    for number in range(JOBS):
        job = _random_job(chance)
        by_rule = ""
        try:
            await admin.create(resource_of(job), job | {"metadata": {"name": f"job-{number}"}}, namespace)
        except Refused as refused:
            by_rule = refused.message
        by_validation = "; ".join(verdict(kind_of(job), a_request(job)).errors)

        assert _sum(by_rule) == _sum(by_validation), job
        sums.add(_sum(by_rule))

    assert len(sums) > JOBS // 8  # else too few of the jobs are too large


def _random_job(chance: random.Random) -> Manifest:
    roles = {}
    for name in "abc"[: chance.randint(2, 3)]:
        fields: Manifest = {"replicas": chance.randint(1, 6000)}
        if chance.random() < 0.5:
            fields["edlPolicy"] = chance.choice(["Auto", "Manual", "Never"])
        if chance.random() < 0.5:
            fields["maxReplicas"] = fields["replicas"] + chance.randint(0, 3000)
        roles[name] = replica(**fields)
    scale: Manifest = {"elasticReplicas": chance.randint(1, 6000)} if chance.random() < 0.3 else {}
    return aitrainingjob(replicaSpecs=roles, **scale)


def _sum(message: str) -> str:
    """The number of replicas that a message says is too many."""
    found = re.search(r"the replicas of all roles add up to (\d+)", message)
    return found[1] if found else ""
