"""Splits the bytes of a watch into lines.

Only ``\\n`` ends a line: strings in an object may contain U+0085 or U+2028, at which ``str.splitlines`` splits.
"""


class LineBuffer:
    """Takes chunks and returns the lines that are complete. Each byte is copied at most twice, independent of the
    length of its line; ``pending`` is the number of bytes of the incomplete line."""

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
