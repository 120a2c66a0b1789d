"""Floods of half-sent requests against a process of its own, and the most memory that the process ever took."""

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

MEGABYTE = 1024 * 1024


def peak_memory(pid: int) -> float:
    """Megabytes, as the kernel has recorded them."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


@contextmanager
def process(command: Sequence[str | Path]) -> Iterator[Popen[bytes]]:
    with Popen(command, stdout=DEVNULL, stderr=DEVNULL) as running:
        try:
            yield running
        finally:
            running.terminate()


async def flood(
    port: int, path: str, *, connections: int, declared: int, sent: int, tls: ssl.SSLContext | None = None
) -> int:
    """Opens connections, ten of each address, and sends a part of a body on all of them. All stay open until the last
    one is answered or closed. Returns how many were answered."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {declared}\r\n\r\n".encode()
    body = b" " * sent
    writers: list[asyncio.StreamWriter] = []

    async def one(number: int) -> bool:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=tls, local_addr=(f"127.0.3.{number // 10 % 250 + 1}", 0)
            )
            writers.append(writer)
            writer.write(head + body)
            return bool(await reader.readline())
        except OSError:
            return False

    try:
        return sum(await asyncio.gather(*(one(number) for number in range(connections))))
    finally:
        for writer in writers:
            writer.transport.abort()
