"""Conditions, reasons and phases that jobs get in the situations of tests/matrix are in the tables."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import trainmaster
from reference import forms
from reference.forms import Form
from tests.matrix.kinds import Row
from tests.matrix.outcome import Case
from tests.matrix.table import TABLE, Situation
from tests.matrix.world import World
from trainmaster.kinds.dijob import reason as dijob_reason
from trainmaster.kinds.mlkube import reason as mlkube_reason
from trainmaster.kinds.mxjob import reason as mxjob_reason
from trainmaster.lifecycle import reason as shared_reason

SOURCE = Path(trainmaster.__file__).parent


@cache
def seen() -> dict[str, dict[str, set[str]]]:
    """By kind: the types of conditions, the reasons of conditions and Events, and phases."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for situation in TABLE:
        for row in situation.rows:
            if situation.found or situation.cell(row) is None:
                continue
            with row.world(situation.manifest(row)) as world:
                _play(situation, row, world)
                _collect(world, found[type(world.kind).__name__])
    return found


def _play(situation: Situation, row: Row, world: World) -> None:
    case = Case(row, world)
    if not situation.at_creation:
        case.start()
    situation.act(case)
    if situation.at_creation:
        world.create()
    world.run(600)
    case.recover()
    world.run(600)


def _collect(world: World, found: dict[str, set[str]]) -> None:
    found["reasons"].update(event.reason for event in world.notes.events)
    if world.is_gone:
        return
    status = world.job.get("status", {})
    found["phases"].add(status.get("phase", ""))
    for condition in status.get("conditions", ()):
        found["types"].add(condition["type"])
        found["reasons"].add(condition.get("reason", ""))


pytestmark = pytest.mark.long
FORMS = [pytest.param(form, id=form.kind.__name__) for form in forms.FORMS]


@pytest.mark.parametrize("form", FORMS)
def test_phases_are_those_of_the_table(form: Form) -> None:
    phases = seen()[form.kind.__name__]["phases"] - {""}

    assert len(phases) >= 3
    assert phases <= set(form.phases)


@pytest.mark.parametrize("form", FORMS)
def test_conditions_are_phases_or_those_of_the_tables(form: Form) -> None:
    assert seen()[form.kind.__name__]["types"] <= {*form.phases, *form.conditions, *forms.CONDITIONS}


@pytest.mark.parametrize("form", FORMS)
def test_reasons_are_those_of_the_tables(form: Form) -> None:
    known = {
        *(*forms.prefixed_reasons(form), *form.reasons, *forms.REASONS),
        *(*form.conditions, *forms.CONDITIONS),  # some Events are called like a condition
        *(*form.phases, *form.steps),  # the reasons of Finished
    }
    action = re.compile(
        rf"(Successful|Failed)(Create|Delete|Update)(Pod|Service|Job|PodGroup|ConfigMap|{form.kind.resource.kind})?"
    )

    assert not [r for r in seen()[form.kind.__name__]["reasons"] if r and r not in known and not action.fullmatch(r)]


@pytest.mark.parametrize("module", [shared_reason, dijob_reason, mlkube_reason, mxjob_reason], ids=lambda m: m.__name__)
def test_every_reason_is_used(module: object) -> None:
    own = Path(str(vars(module)["__file__"]))
    others = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path != own)
    body = own.read_text().partition("\ndef ")[2]

    names = [name for name in vars(module) if name.isupper()]
    assert not [name for name in names if not re.search(rf"\b{name}\b", others + body)]
