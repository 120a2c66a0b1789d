"""Events go an hour after they were last written."""

import asyncio
from typing import Any

import pytest

from trainmaster.core.ids import EVENT
from trainmaster.local.apiserver.controllers.expire import LIFETIME, EventExpiry
from trainmaster.local.apiserver.objects.catalog import Catalog
from trainmaster.local.apiserver.objects.state import State
from trainmaster.local.apiserver.store.store import Place, Store


def event(name: str) -> tuple[Place, dict[str, Any]]:
    return Place(str(EVENT), "n", name), {"metadata": {"name": name}}


@pytest.mark.looptime
async def test_an_event_expires_unless_it_was_written_again() -> None:
    store = Store.open(":memory:")
    store.put(*event("from-before"))
    async with EventExpiry(State(store, Catalog(store))).running():
        store.put(*event("once"))
        store.put(*event("again"))
        await asyncio.sleep(LIFETIME / 2)
        store.put(*event("again"))
        await asyncio.sleep(LIFETIME / 2 + 120)
        assert [stored.place.name for stored in store.select(str(EVENT))] == ["again"]
        await asyncio.sleep(LIFETIME)
        assert store.select(str(EVENT)) == []
    store.close()
