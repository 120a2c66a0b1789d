"""Every registered kind, against random histories: as many as the quick gate has time for, or as many in all as
``make histories N=10000`` asks for."""

import os

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.laws.machine import machine_of
from tests.laws.maker import MAKERS, GangMaker, Maker
from trainmaster.kinds.registry import KINDS

HISTORIES = int(os.environ.get("TRAINMASTER_HISTORIES", "0")) // len(MAKERS) or 20
STEPS = 30


def run(maker: Maker, histories: int) -> None:
    run_state_machine_as_test(
        machine_of(maker),
        settings=settings(max_examples=histories, stateful_step_count=STEPS, deadline=None, database=None),
    )


def test_every_registered_kind_is_held_to_the_laws() -> None:
    assert {maker.kind for maker in MAKERS} == set(KINDS)


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.kind.__name__)
def test_the_laws_hold_in_every_history(maker: Maker) -> None:
    run(maker, HISTORIES)


def test_the_laws_hold_for_gangs() -> None:
    run(GangMaker(), HISTORIES // 4)
