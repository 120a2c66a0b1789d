"""Every registered kind, against random histories: as many as the quick gate has time for, or as many in all as
``make histories N=10000`` asks for."""

import pytest

from tests.laws.machine import hold, machine_of
from tests.laws.maker import MAKERS, GangMaker, Maker
from trainmaster.kinds.registry import KINDS


def test_every_registered_kind_is_held_to_the_laws() -> None:
    assert {maker.kind for maker in MAKERS} == set(KINDS)


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.kind.__name__)
def test_the_laws_hold_in_every_history(maker: Maker) -> None:
    hold(machine_of(maker), few=20)


def test_the_laws_hold_for_gangs() -> None:
    hold(machine_of(GangMaker()), few=5)
