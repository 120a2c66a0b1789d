"""Every registered kind, against random histories."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.laws.machine import machine_of
from tests.laws.maker import MAKERS, Maker
from trainmaster.kinds.registry import KINDS

HISTORIES = 120
STEPS = 30


def test_every_registered_kind_is_held_to_the_laws() -> None:
    assert {maker.kind for maker in MAKERS} == set(KINDS)


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.kind.__name__)
def test_the_laws_hold_in_every_history(maker: Maker) -> None:
    run_state_machine_as_test(
        machine_of(maker),
        settings=settings(max_examples=HISTORIES, stateful_step_count=STEPS, deadline=None, database=None),
    )
