"""Which restart of how many."""

from datetime import UTC, datetime

from tests.build import an_mxjob, view_of
from trainmaster.client.restart_number import last_restart, model_of_job
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.lifecycle.restart import Restart, Restarts

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def test_an_incident_of_two_roles_is_one_restart_of_the_job() -> None:
    view = view_of(an_mxjob(policy={"backoffLimit": 6}))
    kinds = next(kinds for kinds in all_resource_kinds(Settings()) if kinds.name == "mxjob")
    counts = {"Server": Restarts(count=1, used=1), "Worker": Restarts(count=1, used=1, shared=1)}

    found = last_restart([Restart(NOW, "worker-0", "Pod")], counts, model_of_job(kinds, view))

    assert found is not None
    assert (found.number, found.limit) == (1, 6)
