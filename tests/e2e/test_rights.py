"""At the end of a run: what the programs of each installation may do is what they did."""

import pytest

from deploy.manager import ALL, Variant, bodies
from testbed.cluster.cluster import Cluster
from tests.e2e.audit import Audit, granted
from tests.e2e.life import use_all_rights
from tests.e2e.rights import INSTALLATIONS, UNUSABLE, is_unusable, needed


def test_the_programs_of_the_whole_installation_use_their_rights(installed: Cluster, audit: Audit) -> None:
    use_all_rights(installed, [ALL], audit)


@pytest.mark.parametrize("variant", INSTALLATIONS, ids=lambda variant: variant.file.name)
def test_the_rights_that_were_used_are_those_that_are_granted(
    installed: Cluster, audit: Audit, variant: Variant
) -> None:
    """In the whole run. The chart has the accounts and rights of install.yaml."""
    audit.look()
    allowed = granted(bodies(variant))

    assert [str(right) for right in audit.unused(needed(variant))] == []
    assert [str(use) for use in audit.beyond(allowed)] == []


@pytest.mark.parametrize(("verb", "end"), UNUSABLE)
def test_a_right_that_cannot_be_used_here_is_granted_and_was_not_used(audit: Audit, verb: str, end: str) -> None:
    rights = {right for variant in INSTALLATIONS for right in granted(bodies(variant)) if is_unusable(right)}
    found = [right for right in rights if (right.verb, right.resource[-len(end) :]) == (verb, end)]

    audit.look()

    assert found
    assert audit.unused(found) == sorted(found)
