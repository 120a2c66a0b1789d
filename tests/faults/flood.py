"""Connections from 127.0.0.2 that ask for the same path as fast as they can, until this program is ended.

python -m tests.faults.flood PORT PATH CONNECTIONS
"""

import asyncio
import sys
from contextlib import suppress


async def ask(port: int, request: bytes) -> None:
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            try:
                while True:
                    writer.write(request)
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            finally:
                writer.close()
        await asyncio.sleep(0)


async def main(port: int, path: str, connections: int) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    await asyncio.gather(*(ask(port, request) for _ in range(connections)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
