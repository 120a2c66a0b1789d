"""The laws have teeth: every defect of ``mutations`` is caught by some history."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.laws.machine import machine_of
from tests.laws.maker import MAKERS
from tests.laws.mutations import MUTATIONS, Mutation
from tests.laws.operator import LawBroken


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_laws_catch(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_of(next(maker for maker in MAKERS if maker.kind is mutation.kind))
    mutation.put_in(monkeypatch)

    with pytest.raises((LawBroken, ExceptionGroup)) as caught:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=2000,
                stateful_step_count=30,
                deadline=None,
                database=None,
                phases=[Phase.generate],  # finding is the point here; the smallest example is not
                suppress_health_check=list(HealthCheck),
            ),
        )

    assert caught.group_contains(LawBroken) if isinstance(caught.value, ExceptionGroup) else True
