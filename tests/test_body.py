"""The budget of request bodies."""

import asyncio

import pytest

from trainmaster.body import BodyBudget, NoRoom


class Holder:
    """A body that is in flight until it is let go."""

    def __init__(self, budget: BodyBudget, size: int) -> None:
        self.has_room = False
        self._end = asyncio.Event()
        self.task = asyncio.ensure_future(self._hold(budget, size))

    async def _hold(self, budget: BodyBudget, size: int) -> None:
        async with budget.reserved(size):
            self.has_room = True
            await self._end.wait()

    async def let_go(self) -> None:
        self._end.set()
        await self.task


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def held(budget: BodyBudget, *sizes: int) -> list[Holder]:
    found = [Holder(budget, size) for size in sizes]
    await turns()
    return found


async def test_bodies_beyond_the_budget_wait_in_their_order() -> None:
    large, next_, small = await held(BodyBudget(10, patience=60.0), 8, 4, 1)
    assert [each.has_room for each in (large, next_, small)] == [True, False, False]

    await large.let_go()
    await turns()

    assert [each.has_room for each in (next_, small)] == [True, True]
    await next_.let_go()
    await small.let_go()


async def test_a_body_that_waits_too_long_is_refused_and_the_next_one_gets_its_turn() -> None:
    budget = BodyBudget(10, patience=0.0)
    (holder,) = await held(budget, 8)

    with pytest.raises(NoRoom):
        async with budget.reserved(8):
            pass

    async with budget.reserved(2):
        await holder.let_go()


async def test_a_request_that_goes_while_it_waits_leaves_nothing_behind() -> None:
    budget = BodyBudget(10, patience=60.0)
    holder, waiting, behind = await held(budget, 8, 8, 2)

    waiting.task.cancel()
    await turns()
    assert behind.has_room

    await holder.let_go()
    await behind.let_go()
    async with budget.reserved(10):
        pass


async def test_a_request_that_goes_in_the_moment_of_its_turn_gives_it_back() -> None:
    budget = BodyBudget(10, patience=60.0)
    holder, waiting = await held(budget, 8, 8)

    await holder.let_go()
    waiting.task.cancel()
    await turns()

    async with budget.reserved(10):
        pass


async def test_a_body_that_is_larger_than_the_budget_has_it_alone() -> None:
    budget = BodyBudget(10, patience=0.0)
    async with budget.reserved(1000):
        with pytest.raises(NoRoom):
            async with budget.reserved(1):
                pass


async def test_bodies_that_give_up_while_others_get_room_take_none_of_it() -> None:
    budget = BodyBudget(10, patience=60)

    async def hold(size: int) -> None:
        async with budget.reserved(size):
            pass

    async with budget.reserved(10):
        impatient = [asyncio.ensure_future(hold(4)) for _ in range(2)]
        patient = asyncio.ensure_future(hold(4))
        await asyncio.sleep(0)
        for each in impatient:
            each.cancel()  # and their turn comes before they notice

    await patient
    assert [type(each) for each in await asyncio.gather(*impatient, return_exceptions=True)] == [
        asyncio.CancelledError
    ] * 2
    async with asyncio.timeout(1), budget.reserved(10):
        pass
