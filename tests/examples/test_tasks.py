"""The mesh of examples/tasks: processes find each other by rank, and again after a restart."""

import itertools
import os
import socket
import struct

import pytest

from examples.tasks import job, mesh
from examples.tasks.mesh import GAP, LEARNT, SEEN, SOLVED, Mesh, Message

_NUMBERS = itertools.count(1)


@pytest.fixture
def nodes() -> list[str]:
    """Loopback addresses that no other test has."""
    return [f"127.{20 + os.getpid() % 12}.{os.getpid() // 12 % 250}.{next(_NUMBERS)}" for _ in range(3)]


def joined(nodes: list[str], rank: int) -> Mesh:
    return Mesh.joined({"DI_NODES": ",".join(nodes), "DI_RANK": str(rank)}, {LEARNT, SOLVED})


def test_messages_reach_all_ranks_or_one(nodes: list[str]) -> None:
    first, second, third = (joined(nodes, rank) for rank in range(3))
    while first.peers != [1, 2]:
        first.next(0.01)

    first.send(Message(LEARNT, b"to all"))
    first.send(Message(SEEN, b"nobody wants it"))
    first.send(Message(SOLVED, b"to one"), to=2)

    assert second.next(10.0) == Message(LEARNT, b"to all")
    assert [third.next(10.0), third.next(10.0)] == [Message(LEARNT, b"to all"), Message(SOLVED, b"to one")]
    assert second.next(0.0) is None


def test_a_process_that_connects_gets_the_state_first(nodes: list[str]) -> None:
    joined(nodes, 0).keep(Message(LEARNT, b"state"))

    assert joined(nodes, 2).next(10.0) == Message(LEARNT, b"state")


def test_a_gap_is_not_dialled(nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[int] = []
    monkeypatch.setattr(Mesh, "_dial", lambda self, rank, node: dialled.append(rank))

    joined([GAP, nodes[1], nodes[2]], 2)

    assert dialled == [1]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(struct.pack("!BI", SEEN, 0), id="no rank"),
        pytest.param(struct.pack("!BI", 0, 2**32 - 1), id="too long"),
        pytest.param(struct.pack("!BI", 0, 2) + b"ab", id="half a rank"),
    ],
)
def test_a_peer_that_does_not_speak_the_protocol_is_disconnected(nodes: list[str], sent: bytes) -> None:
    own = joined(nodes, 0)
    with socket.create_connection((nodes[0], mesh.PORT), timeout=10) as peer:
        peer.sendall(sent)
        while peer.recv(100):
            pass

    assert own.peers == []


def test_a_process_that_starts_after_the_end_has_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DI_NODES", f"{GAP},127.0.0.1")
    monkeypatch.setenv("DI_RANK", "1")

    with pytest.raises(SystemExit) as ended:
        job.join("collector", {LEARNT})

    assert ended.value.code == 0


def test_a_message_that_is_no_state_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert job.state_of(Message(LEARNT, b"no arrays")) is None
    assert "ignored a message" in capsys.readouterr().out
