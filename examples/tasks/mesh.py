"""Connects the processes of a job as DI-engine's ditask does: each listens at its own entry of DI_NODES, all on the
same port, and dials the lower ranks. A connection that breaks is dialled again, so a process that was restarted is
found at its old address.

On the wire: kind and length of a message, then its body. The first message in each direction is the rank of the sender.
"""

import queue
import socket
import struct
import threading
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from examples.rl.say import say

PORT = 50515
GAP = "localhost"  # in the place of a replica that was removed or has succeeded
RANK, LEARNT, SEEN, SOLVED = range(4)  # kinds of messages
LIMIT = 4 * 1024 * 1024  # bytes of a body
WAITING = 64  # messages
PAUSE = 0.2  # seconds between two dials
SEND_SECONDS = 10

_HEADER = struct.Struct("!BI")
_NUMBER = struct.Struct("!I")


class Message(NamedTuple):
    kind: int
    body: bytes


class Mesh:
    """``wanted``: the kinds of messages that this process reads."""

    def __init__(self, nodes: list[str], rank: int, wanted: Collection[int]) -> None:
        self.nodes = nodes
        self.rank = rank
        self._wanted = wanted
        self._inbox: queue.Queue[Message] = queue.Queue(WAITING)
        self._peers: dict[int, socket.socket] = {}
        self._state: Message | None = None
        self._lock = threading.Lock()

    @classmethod
    def joined(cls, environment: Mapping[str, str], wanted: Collection[int]) -> "Mesh":
        """The mesh of the job of this process."""
        mesh = cls(environment["DI_NODES"].split(","), int(environment["DI_RANK"]), wanted)
        listener = socket.create_server((mesh.nodes[mesh.rank], PORT))
        _start(mesh._accept, listener)
        for rank, node in enumerate(mesh.nodes[: mesh.rank]):
            if node != GAP:
                _start(mesh._dial, rank, node)
        return mesh

    @property
    def peers(self) -> list[int]:
        """The ranks that are connected."""
        return sorted(self._peers)

    def next(self, seconds: float) -> Message | None:
        """The next message; None if none comes in this time."""
        try:
            return self._inbox.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None

    def keep(self, message: Message) -> None:
        """Every process that connects from now on gets this message first."""
        self._state = message

    def send(self, message: Message, to: int | None = None) -> None:
        """To all peers, or to one. A peer that is not connected gets nothing."""
        for rank, peer in list(self._peers.items()):
            if to in (None, rank):
                try:
                    self._write(peer, message)
                except OSError:
                    peer.close()  # the thread that reads from it notices, and a new connection is made

    def _accept(self, listener: socket.socket) -> None:
        while True:
            peer, _ = listener.accept()
            _start(self._read_from, peer)

    def _dial(self, rank: int, node: str) -> None:
        while True:
            try:
                peer = socket.create_connection((node, PORT), timeout=SEND_SECONDS)
            except OSError:
                pass  # it has not started yet
            else:
                self._read_from(peer)
            time.sleep(PAUSE)

    def _read_from(self, peer: socket.socket) -> None:
        rank = -1
        peer.settimeout(None)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
        try:
            self._write(peer, Message(RANK, _NUMBER.pack(self.rank)))
            rank = _rank(_read(peer))
            self._peers[rank] = peer
            say(f"rank {rank} is connected")
            if self._state is not None:
                self._write(peer, self._state)
            while True:
                message = _read(peer)
                if message.kind in self._wanted:
                    self._inbox.put(message)
        except (OSError, ValueError, struct.error):
            if self._peers.get(rank) is peer:
                del self._peers[rank]
                say(f"rank {rank} is lost")
        finally:
            peer.close()

    def _write(self, peer: socket.socket, message: Message) -> None:
        with self._lock:  # whole messages
            peer.sendall(_HEADER.pack(message.kind, len(message.body)) + message.body)


def _read(peer: socket.socket) -> Message:
    kind, size = _HEADER.unpack(_exactly(peer, _HEADER.size))
    if size > LIMIT:
        raise ValueError(f"a message of {size} bytes is longer than {LIMIT}")
    return Message(kind, _exactly(peer, size))


def _rank(message: Message) -> int:
    if message.kind != RANK:
        raise ValueError("the first message is not a rank")
    (rank,) = _NUMBER.unpack(message.body)
    return int(rank)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(min(size - len(data), 65536))
        if not part:
            raise ConnectionError("the connection was closed")
        data += part
    return bytes(data)


def _start(function: object, *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()  # type: ignore[arg-type]
