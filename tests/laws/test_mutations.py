"""The laws have teeth: every defect of ``mutations`` is caught by some history."""

import pytest

from tests.laws.machine import catch, machine_of
from tests.laws.maker import MAKERS
from tests.laws.mutations import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_laws_catch(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_of(next(maker for maker in MAKERS if maker.kind is mutation.kind))
    mutation.put_in(monkeypatch)

    catch(machine)
