from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from trainmaster.core.ids import LEASE, Key
from trainmaster.core.view import LEASE_CODEC, LeaseView
from trainmaster.runtime.other_operators import MAX_SECONDS, OtherOperators
from trainmaster.runtime.store import Store

OWN, THEIRS = "kube-system", "team"


class Rig:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.leases = Store[LeaseView](LEASE)
        self.others = OtherOperators(self.leases, OWN, lambda: self.now)
        self.ended: list[str] = []
        self.others.on_end(self.ended.append)
        self.leases.replace([], 1000)

    def put(self, namespace: str = THEIRS, holder: str = "them", seconds: int = 15) -> None:
        version = self.leases.seen + 1
        self.leases.put(LeaseView(Key(namespace, "dijobs"), f"uid-of-{namespace}", version, False, holder, seconds))
        self.leases.advance(version)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def test_a_lease_is_decoded_with_and_without_a_holder() -> None:
    meta = {"namespace": THEIRS, "name": "dijobs", "uid": "1", "resourceVersion": "7"}
    full = {"metadata": meta, "spec": {"holderIdentity": "them", "leaseDurationSeconds": 15, "renewTime": "x"}}

    assert LEASE_CODEC.object(msgspec.json.encode(full)) == LeaseView(Key(THEIRS, "dijobs"), "1", 7, False, "them", 15)
    bare = LEASE_CODEC.object(msgspec.json.encode({"metadata": meta, "spec": {"holderIdentity": None}}))
    assert (bare.holder, bare.seconds) == ("", 0)


def test_a_lease_is_held_until_its_duration_after_the_last_change_is_over() -> None:
    rig = Rig()
    rig.put()
    rig.wait(14)
    assert rig.others.seconds_left(THEIRS) == 1

    rig.put()
    rig.wait(14)
    assert rig.others.seconds_left(THEIRS) == 1

    rig.wait(1)
    assert rig.others.seconds_left(THEIRS) == 0
    assert rig.ended == [THEIRS]


@pytest.mark.parametrize("how", ["given back", "deleted"])
def test_a_lease_ends_at_once_when_it_is(how: str) -> None:
    rig = Rig()
    rig.put()
    if how == "deleted":
        found = rig.leases.get(Key(THEIRS, "dijobs"))
        assert found
        rig.leases.remove(msgspec.structs.replace(found, resource_version=2000))
    else:
        rig.put(holder="")

    assert rig.others.seconds_left(THEIRS) == 0
    assert rig.ended == [THEIRS]


def test_our_own_lease_and_namespaces_without_one_are_not_held_by_others() -> None:
    rig = Rig()
    rig.put(OWN)
    rig.put(THEIRS)

    assert rig.others.seconds_left(OWN) == 0
    assert rig.others.seconds_left("nobody") == 0
    assert rig.ended == []


def test_no_lease_is_held_for_longer_than_a_minute_after_its_last_change() -> None:
    rig = Rig()
    rig.put(seconds=2_000_000_000)

    assert rig.others.seconds_left(THEIRS) == MAX_SECONDS
