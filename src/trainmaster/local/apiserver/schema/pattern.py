"""Regular expressions as Kubernetes reads them (RE2), on Python's engine.

The dialects differ in what looks the same: ``$`` is the very end, ``\\d`` and ``\\w`` are ASCII, and nothing looks
around or back. What cannot be said is refused, not approximated.
"""

import re
from functools import lru_cache

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r"\t ",
    "digit": "0-9",
    "lower": "a-z",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": r"0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_FOREIGN = re.compile(r"\(\?(?:[=!]|<[=!]|P=|P>|\(|>|#)")
_PART = re.compile(r"\\.|\[:(?P<posix>[a-z]+):\]|[\[\]$]|.", re.DOTALL)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for Python; raises ``re.error`` for what RE2 does not know either, or what cannot be translated."""
    if _FOREIGN.search(pattern):
        raise re.error("looking around and back references are not supported", pattern)
    return re.compile(_translated(pattern), re.ASCII)


def _translated(pattern: str) -> str:
    parts: list[str] = []
    in_class = False
    for match in _PART.finditer(pattern):
        part = match[0]
        if match["posix"]:
            part = _posix(match["posix"], pattern)
        elif part[0] == "\\":
            part = _escape(part, pattern)
        elif part == "$" and not in_class:
            part = r"\Z"
        elif part == "[":
            part, in_class = (r"\[", True) if in_class else ("[", True)
        elif part == "]":
            # A bracket right after the opening one is a member of the class, in both dialects.
            in_class = in_class and "".join(parts[-2:]).endswith(("[", "[^")) and parts[-1] != r"\["
        parts.append(part)
    return "".join(parts)


def _posix(name: str, pattern: str) -> str:
    if name not in _POSIX:
        raise re.error(f"there is no character class [:{name}:]", pattern)
    return _POSIX[name]


def _escape(part: str, pattern: str) -> str:
    letter = part[1:]
    if letter == "z":
        return r"\Z"
    if letter in ("Z", "G", "C", "Q", "E", "p", "P", "k", "u", "U", "N") or letter in "123456789":
        raise re.error(f"{part} is not supported", pattern)
    return part
