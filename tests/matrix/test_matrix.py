"""Plays every cell of the table."""

from collections.abc import Mapping

import pytest

from tests.matrix.kinds import Row
from tests.matrix.outcome import Case, Outcome, Unsaid
from tests.matrix.table import PREDECESSORS, TABLE, Situation
from tests.matrix.world import World
from tests.takeover.load import world_of


def _cells() -> list[object]:
    found: list[object] = []
    for situation in TABLE:
        for row in situation.rows:
            if (outcome := situation.cell(row)) is None:
                continue
            marks = _marks(situation, row)
            found.append(pytest.param(situation, row, outcome, id=f"{situation.name}-{row.name}", marks=marks))
    return found


def _marks(situation: Situation, row: Row) -> list[pytest.MarkDecorator]:
    reds: tuple[tuple[Mapping[str, str], type[Exception]], ...] = (
        (situation.red, AssertionError),
        (situation.silent, Unsaid),
    )
    return [
        pytest.mark.xfail(reason=red[row.contract], raises=error, strict=True)
        for red, error in reds
        if row.contract in red
    ]


@pytest.mark.parametrize(("situation", "row", "outcome"), _cells())
def test_the_job_ends_as_the_table_says(situation: Situation, row: Row, outcome: Outcome) -> None:
    with _world(situation, row) as world:
        case = Case(row, world)
        if situation.found:
            case.find()
        elif not situation.at_creation:
            case.start()
        situation.act(case)
        if situation.at_creation:
            world.create()

        outcome.check(case)


def _world(situation: Situation, row: Row) -> World:
    options = situation.manifest(row)
    if not situation.found:
        return row.world(options)
    return world_of(PREDECESSORS[row.contract], row.build(options)["apiVersion"])


@pytest.mark.parametrize("situation", TABLE, ids=lambda situation: situation.name)
def test_every_remark_of_the_table_is_about_a_row(situation: Situation) -> None:
    contracts = {row.contract for row in situation.rows}

    assert {*situation.differs, *situation.red, *situation.silent} <= contracts


def test_every_situation_has_a_name_of_its_own() -> None:
    assert len({situation.name for situation in TABLE}) == len(TABLE)
