import asyncio
from typing import Any

import pytest
import structlog

from tests.runtime.cluster import Call, FakeCluster, raising
from tests.webhook.build import Json
from tests.webhook.clock import Clock
from trainmaster.core.errors import Conflict, Forbidden, Unreachable
from trainmaster.core.ids import Key, Resource
from trainmaster.webhook.bundle import trusted_by
from trainmaster.webhook.certificate import Material, is_issued_by, material_in
from trainmaster.webhook.keeper import MUTATING, SECRET, VALIDATING, Keeper, Place, Times
from trainmaster.webhook.served import Served

TIMES = Times()
PLACE = Place(
    secret=Key("system", "certificate"), hosts=frozenset({"webhook.system.svc"}), mutating="ours", validating="ours"
)
CONFIGURATION = Key("", "ours")
EMPTY = {"metadata": {"name": "certificate", "namespace": "system"}, "type": "Opaque"}
"""The Secret as the manifest has it."""


def a_configuration(*names: str) -> Json:
    webhooks = [{"name": name, "clientConfig": {"service": {"name": "webhook"}}} for name in names]
    return {"metadata": {"name": "ours", "namespace": ""}, "webhooks": webhooks}


class Replica:
    """One webhook, on a line of its own to the API server."""

    def __init__(self, cluster: FakeCluster, clock: Clock) -> None:
        self.cluster = cluster.line()
        self.served = Served()
        self.keeper = Keeper(self.cluster, PLACE, self.served, now=clock.now, monotonic=clock.monotonic, times=TIMES)

    async def look(self) -> None:
        await self.keeper.look()


@pytest.fixture
def cluster() -> FakeCluster:
    configurations = (MUTATING, a_configuration("m.kb.io")), (VALIDATING, a_configuration("v.kb.io", "w.kb.io"))
    return FakeCluster(*configurations, (SECRET, EMPTY))


@pytest.fixture
def replica(cluster: FakeCluster, clock: Clock) -> Replica:
    return Replica(cluster, clock)


def kept(cluster: FakeCluster) -> Material:
    body = cluster.find(SECRET, PLACE.secret)
    assert body is not None
    return material_in(body["data"])


def trusted(cluster: FakeCluster, resource: Resource) -> Any:
    body = cluster.find(resource, CONFIGURATION)
    assert body is not None
    return trusted_by(body["webhooks"])


def writes(cluster: FakeCluster) -> list[Call]:
    return [call for call in cluster.calls if call.verb not in ("get", "list", "watch")]


# --- the first start ---


async def test_a_fresh_one_makes_serves_and_announces_its_certificate(cluster: FakeCluster, replica: Replica) -> None:
    assert replica.keeper.trouble == "nothing was looked at yet"
    await replica.look()

    material = kept(cluster)
    assert replica.served.leaf == material.serving.certificate
    assert trusted(cluster, MUTATING) == trusted(cluster, VALIDATING) == {material.authority.certificate}
    assert replica.keeper.trouble == ""


async def test_a_settled_one_writes_nothing(cluster: FakeCluster, replica: Replica, clock: Clock) -> None:
    await replica.look()
    cluster.calls.clear()
    for _ in range(3):
        clock.run(TIMES.look)
        await replica.look()

    assert writes(cluster) == []
    assert len(cluster.calls) == 9


async def test_two_that_start_at_once_end_with_one_authority(cluster: FakeCluster, clock: Clock) -> None:
    replicas = [Replica(cluster, clock) for _ in range(2)]

    async def both_have_asked(call: Call) -> None:
        if call.verb == "replace":
            await barrier.wait()

    barrier = asyncio.Barrier(2)
    for each in replicas:
        each.cluster.before = both_have_asked
    await asyncio.gather(*(each.look() for each in replicas))

    material = kept(cluster)
    assert [each.served.leaf for each in replicas] == [material.serving.certificate] * 2
    assert [each.keeper.trouble for each in replicas] == ["", ""]
    assert trusted(cluster, MUTATING) == trusted(cluster, VALIDATING) == {material.authority.certificate}
    assert len(cluster.asked("replace")) == 2


async def test_the_next_one_takes_what_is_there(cluster: FakeCluster, replica: Replica, clock: Clock) -> None:
    await replica.look()
    second = Replica(cluster, clock)
    cluster.calls.clear()
    await second.look()

    assert second.served.leaf == replica.served.leaf
    assert writes(cluster) == []


async def test_a_configuration_that_is_missing_is_named_and_waited_for(cluster: FakeCluster, clock: Clock) -> None:
    alone = FakeCluster((VALIDATING, a_configuration("v.kb.io")), (SECRET, EMPTY))
    replica = Replica(alone, clock)
    await replica.look()
    assert replica.keeper.trouble == "there is no MutatingWebhookConfiguration ours; apply deploy/webhook.yaml"

    alone.put(MUTATING, a_configuration("m.kb.io"))
    await replica.look()
    assert replica.keeper.trouble == ""


NO_SECRET = (
    "there is no Secret system/certificate for the certificates; "
    "create it empty: kubectl create secret generic certificate --namespace system"
)


async def test_a_secret_that_is_missing_is_told_with_the_command_that_creates_it(
    cluster: FakeCluster, replica: Replica
) -> None:
    """It is not created: the right to create a Secret is the right to have the token of every account."""
    cluster.take(SECRET, PLACE.secret)
    await replica.look()
    assert replica.keeper.trouble == NO_SECRET
    assert writes(cluster) == []

    cluster.put(SECRET, EMPTY)
    await replica.look()
    assert replica.keeper.trouble == ""


async def test_a_secret_that_is_deleted_later_takes_nothing_from_what_is_served(
    cluster: FakeCluster, replica: Replica, clock: Clock
) -> None:
    await replica.look()
    leaf = replica.served.leaf
    cluster.take(SECRET, PLACE.secret)
    await replica.look()
    assert (replica.keeper.trouble, replica.served.leaf) == ("", leaf)

    clock.run(TIMES.linger / 2 + 1)
    assert replica.keeper.trouble == f"the certificate may be an old one: {NO_SECRET}"


async def test_a_caBundle_that_was_lost_comes_back(cluster: FakeCluster, replica: Replica) -> None:  # noqa: N802
    await replica.look()
    cluster.put(MUTATING, a_configuration("m.kb.io", "new.kb.io"))
    await replica.look()

    assert trusted(cluster, MUTATING) == {kept(cluster).authority.certificate}


# --- the certificate is renewed ---


async def test_a_certificate_that_is_due_is_renewed_and_loaded_by_all(cluster: FakeCluster, clock: Clock) -> None:
    replicas = [Replica(cluster, clock) for _ in range(3)]
    for each in replicas:
        await each.look()
    old = kept(cluster)
    clock.jump(61)
    await asyncio.gather(*(each.look() for each in replicas))

    new = kept(cluster)
    assert new.authority == old.authority
    assert {each.served.leaf for each in replicas} == {new.serving.certificate} != {old.serving.certificate}
    assert trusted(cluster, VALIDATING) == {old.authority.certificate}


async def test_a_clock_that_jumps_back_gets_a_certificate_of_its_day(
    cluster: FakeCluster, replica: Replica, clock: Clock
) -> None:
    await replica.look()
    clock.jump(-400)
    assert replica.keeper.trouble.startswith("the certificate is valid from ")
    await replica.look()

    assert replica.keeper.trouble == ""
    assert kept(cluster).authority.certificate in trusted(cluster, MUTATING)


# --- another authority ---


async def test_at_every_moment_of_a_rotation_all_that_is_served_is_trusted(cluster: FakeCluster, clock: Clock) -> None:
    """By every configuration, and since long enough for API servers to know; whichever replica looks when."""
    replicas = [Replica(cluster, clock) for _ in range(2)]
    for each in replicas:
        await each.look()
    first = kept(cluster).authority
    cluster.put(SECRET, EMPTY)  # an administrator asks for a new one
    leaves: list[Any] = []

    for turn in range(200):
        clock.run(TIMES.look / 2)
        before = [trusted(cluster, resource) for resource in (MUTATING, VALIDATING)]
        await replicas[turn % 2].look()
        after = [trusted(cluster, resource) for resource in (MUTATING, VALIDATING)]
        for each in replicas:
            leaf = each.served.leaf
            assert leaf is not None
            assert all(any(is_issued_by(leaf, ca) for ca in known) for known in (*before, *after))
            assert each.keeper.trouble == ""
            leaves.append(leaf)

    second = kept(cluster).authority
    assert first != second
    assert trusted(cluster, MUTATING) == trusted(cluster, VALIDATING) == {second.certificate}
    assert len(set(leaves)) == 2
    assert kept(cluster).is_switched


async def test_the_new_authority_signs_only_when_api_servers_have_heard_of_it(
    cluster: FakeCluster, replica: Replica, clock: Clock
) -> None:
    await replica.look()
    cluster.put(SECRET, EMPTY)
    await replica.look()
    assert len(trusted(cluster, MUTATING)) == 2

    await replica.look()  # from now on it is known
    clock.run(TIMES.settle - 1)
    await replica.look()
    assert not kept(cluster).is_switched
    clock.run(1)
    await replica.look()
    assert kept(cluster).is_switched


async def test_time_in_which_a_configuration_does_not_trust_it_does_not_count(
    cluster: FakeCluster, replica: Replica, clock: Clock
) -> None:
    await replica.look()
    cluster.put(SECRET, EMPTY)
    replica.cluster.before = raising("patch", *[Forbidden("not now")] * 5)
    for _ in range(5):
        await replica.look()
        clock.run(TIMES.settle)
    assert len(trusted(cluster, MUTATING)) == 1
    await replica.look()  # announces it
    await replica.look()  # sees it announced
    clock.run(TIMES.settle - 1)
    await replica.look()
    assert not kept(cluster).is_switched

    clock.run(1)
    await replica.look()
    assert kept(cluster).is_switched


async def test_an_older_view_of_the_secret_never_gets_into_a_bundle(cluster: FakeCluster, clock: Clock) -> None:
    """One replica reads the Secret, and then waits until the other has rotated."""
    slow, quick = Replica(cluster, clock), Replica(cluster, clock)
    await slow.look()
    await quick.look()
    cluster.put(MUTATING, a_configuration("m.kb.io"))  # something to write for both
    asked, done = asyncio.Event(), asyncio.Event()

    async def wait(call: Call) -> None:
        if call.verb == "patch":
            asked.set()
            await done.wait()

    slow.cluster.before = wait
    looking = asyncio.ensure_future(slow.look())
    await asked.wait()
    cluster.put(SECRET, EMPTY)
    await quick.look()
    done.set()
    await looking

    assert trusted(cluster, MUTATING) == set(kept(cluster).trusted)


async def test_a_secret_with_garbage_is_written_anew_and_what_others_put_there_stays(
    cluster: FakeCluster, replica: Replica
) -> None:
    cluster.put(
        SECRET,
        {
            "metadata": {"name": "certificate", "namespace": "system", "labels": {"a": "b"}},
            "type": "Opaque",
            "data": {"tls.key": "Z2FyYmFnZQ==", "note": "eA=="},
        },
    )
    with structlog.testing.capture_logs() as logs:
        await replica.look()

    body = cluster.find(SECRET, PLACE.secret)
    assert body is not None
    assert (body["metadata"]["labels"], body["data"]["note"]) == ({"a": "b"}, "eA==")
    assert replica.served.leaf == kept(cluster).serving.certificate
    assert logs[0]["because"] == "it has no ca.crt"


# --- when the API server does not play along ---


async def test_what_is_served_stays_while_the_api_server_is_away_and_not_for_ever(
    cluster: FakeCluster, replica: Replica, clock: Clock
) -> None:
    await replica.look()
    leaf = replica.served.leaf
    replica.cluster.before = raising("get", *[Unreachable("refused")] * 100)
    clock.run(TIMES.linger / 2)
    await replica.look()
    assert (replica.keeper.trouble, replica.served.leaf) == ("", leaf)

    clock.run(1)
    assert replica.keeper.trouble == "the certificate may be an old one: refused"


@pytest.mark.parametrize("verb", ["get", "replace", "patch"])
async def test_a_right_that_is_missing_at_the_start_is_told(cluster: FakeCluster, replica: Replica, verb: str) -> None:
    replica.cluster.before = raising(verb, Forbidden(f"you may not {verb}"))
    with structlog.testing.capture_logs() as logs:
        await replica.look()
    assert replica.keeper.trouble == f"you may not {verb}"
    assert {"event": "not ready", "because": f"you may not {verb}", "log_level": "warning"} in logs

    await replica.look()
    assert replica.keeper.trouble == ""


async def test_whoever_is_crossed_again_and_again_tries_at_the_next_look(
    cluster: FakeCluster, replica: Replica
) -> None:
    replica.cluster.before = raising("patch", *[Conflict("changed")] * 4)
    await replica.look()
    assert replica.keeper.trouble == "changed"
    await replica.look()
    assert replica.keeper.trouble == ""


async def test_an_answer_that_is_no_object_is_survived(
    cluster: FakeCluster, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def garbage(resource: Resource, key: Key) -> bytes:
        return b"<html>"

    monkeypatch.setattr(replica.cluster, "get", garbage)
    await replica.look()

    assert "malformed" in replica.keeper.trouble


@pytest.mark.looptime
async def test_it_looks_until_told_to_stop(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    loop = asyncio.get_running_loop()

    async def look() -> None:
        looks.append(loop.time())

    monkeypatch.setattr(replica.keeper, "look", look)
    stop = asyncio.Event()
    loop.call_later(25, stop.set)
    await replica.keeper.run(stop)

    assert looks == [0, 10, 20]


async def test_no_key_is_ever_logged(cluster: FakeCluster, replica: Replica, clock: Clock) -> None:
    with structlog.testing.capture_logs() as logs:
        await replica.look()
        cluster.put(SECRET, EMPTY)
        for _ in range(5):
            clock.run(TIMES.settle)
            await replica.look()

    assert len(logs) > 3
    assert "PRIVATE" not in str(logs)
