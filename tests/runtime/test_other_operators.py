from typing import Any

import msgspec
import pytest
import structlog

from tests.runtime.cluster import Call, FakeCluster, raising
from trainmaster.core.errors import Forbidden
from trainmaster.core.ids import LEASE, Key
from trainmaster.core.view import LEASE_CODEC, LeaseView
from trainmaster.runtime.other_operators import MAX_SECONDS, OtherOperators
from trainmaster.runtime.store import Store

OWN, THEIRS, STRANGE = "kube-system", "team", "of-a-stranger"


def a_lease(namespace: str = THEIRS, holder: str | None = "them", seconds: int | None = 15) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"metadata": {"namespace": namespace, "name": "dijobs", "uid": "1", "resourceVersion": "7"}, "spec": spec}


class Rig:
    def __init__(self) -> None:
        self.time = 0.0
        self.cluster = FakeCluster()
        self.leases = Store[LeaseView](LEASE)
        self.others = OtherOperators(self.cluster, self.leases, {THEIRS}, lambda: self.time)
        self.ended: list[str] = []
        self.others.on_end(self.ended.append)
        self.leases.replace([], 1000)

    def write(self, namespace: str = THEIRS, *, is_watched: bool = True, **fields: Any) -> None:
        stored = self.cluster.put(LEASE, a_lease(namespace, **fields))
        if is_watched:
            self.leases.put(LEASE_CODEC.object(msgspec.json.encode(stored)))

    async def left(self, namespace: str = THEIRS) -> float:
        return await self.others.seconds_left(namespace)


@pytest.mark.parametrize(("holder", "seconds"), [("them", 15), (None, None)])
def test_a_lease_is_decoded_with_and_without_a_holder(holder: str | None, seconds: int | None) -> None:
    view = LEASE_CODEC.object(msgspec.json.encode(a_lease(holder=holder, seconds=seconds)))

    assert view == LeaseView(Key(THEIRS, "dijobs"), "1", 7, False, holder or "", seconds or 0)


async def test_a_lease_is_held_until_its_duration_after_the_last_change_is_over() -> None:
    rig = Rig()
    rig.write()
    rig.time = 14
    assert await rig.left() == 1

    rig.write()
    rig.time = 28
    assert await rig.left() == 1

    rig.time = 29
    assert await rig.left() == 0
    assert rig.ended == [THEIRS]


async def test_a_lease_that_was_renewed_while_its_watch_was_behind_is_held() -> None:
    rig = Rig()
    rig.write()
    rig.write(is_watched=False)
    rig.time = 15

    assert await rig.left() == 15
    assert rig.ended == []


async def test_a_renewal_that_the_watch_shows_while_the_lease_is_read_counts() -> None:
    rig = Rig()
    rig.write()

    async def renew(call: Call) -> None:
        rig.write()
        raise Forbidden("no right")

    rig.cluster.before = renew
    rig.time = 15

    assert await rig.left() == 15
    assert rig.ended == []


async def test_a_lease_that_may_not_be_read_ends_with_its_duration() -> None:
    rig = Rig()
    rig.write()
    rig.write(is_watched=False)
    rig.cluster.before = raising("get", Forbidden("no right"))
    rig.time = 15

    assert await rig.left() == 0


@pytest.mark.parametrize("how", ["released", "deleted"])
async def test_a_lease_ends_at_once_when_it_is(how: str) -> None:
    rig = Rig()
    rig.write()
    if how == "deleted":
        found = rig.leases.get(Key(THEIRS, "dijobs"))
        assert found
        rig.leases.remove(msgspec.structs.replace(found, resource_version=2000))
    else:
        rig.write(holder="")

    assert await rig.left() == 0
    assert rig.ended == [THEIRS]


async def test_a_lease_in_a_namespace_that_was_not_delegated_is_not_believed_and_is_warned_of_once() -> None:
    """Kubernetes' role edit includes Leases: a tenant without any right on jobs can write one."""
    rig = Rig()
    with structlog.testing.capture_logs() as logs:
        rig.write(STRANGE)
        rig.write(STRANGE)
        rig.write(STRANGE, holder="")

    assert await rig.left(STRANGE) == 0
    assert rig.ended == []
    (line,) = logs
    assert (line["log_level"], line["lease"], line["holder"]) == ("warning", f"{STRANGE}/dijobs", "them")
    assert f"--delegated-namespace={STRANGE}" in line["hint"]


async def test_a_lease_that_cannot_be_read_any_more_ends_with_its_duration() -> None:
    """Nobody renews it: a Lease of that size cannot be read by the operator that holds it either."""
    rig = Rig()
    rig.write()
    rig.write(is_watched=False, holder="x" * 70_000)
    rig.time = 15
    with structlog.testing.capture_logs() as logs:
        assert await rig.left() == 0
        assert await rig.left() == 0

    assert rig.ended == [THEIRS]
    assert [line["log_level"] for line in logs].count("warning") == 1


async def test_the_message_names_the_holder_of_the_lease() -> None:
    rig = Rig()
    rig.write(holder="them" + 300 * "x")

    message = rig.others.message(THEIRS)
    assert message.startswith("the jobs of this namespace are left to its own operator, themxxx")
    assert "Lease team/dijobs" in message
    assert len(message) < 400


async def test_our_own_lease_and_namespaces_without_one_are_not_held_by_others() -> None:
    rig = Rig()
    rig.write(OWN)
    rig.write(THEIRS)

    assert await rig.left(OWN) == 0
    assert await rig.left("without-a-lease") == 0
    assert rig.ended == []


async def test_no_lease_is_held_for_longer_than_a_minute_after_its_last_change() -> None:
    rig = Rig()
    rig.write(seconds=2_000_000_000)

    assert await rig.left() == MAX_SECONDS
