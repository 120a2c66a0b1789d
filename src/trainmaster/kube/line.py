"""Bytes of a watch into lines.

Only ``\\n`` ends a line: strings in an object may hold U+0085 or U+2028, at which ``str.splitlines`` breaks.
"""


class LineBuffer:
    """Feed chunks, get the lines that became complete. Each byte is copied at most twice, however long
    its line is; ``pending`` counts the bytes of the unfinished one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.pending = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        first, *rest = chunk.split(b"\n")
        self._parts.append(first)
        self.pending += len(first)
        if not rest:
            return []
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        self.pending = len(rest[-1])
        return [line for line in lines if line]
