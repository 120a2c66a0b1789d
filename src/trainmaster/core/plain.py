"""Text that programs and tenants wrote, as it may reach a terminal: in the status of a job, a view, a log."""

import re

BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that reorder text, as a part of a regular expression: a line would not say what it seems to say."""
_COLOUR = r"\x1b\[[0-9;:]*m"
_STRING = r"(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
"""A title of the window, text for the clipboard, a link, a question to the terminal."""
_SEQUENCE = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
_CHARACTER = rf"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029{BIDI}]"
_CONTROL = re.compile(f"{_STRING}|{_SEQUENCE}|{_CHARACTER}")
_CONTROL_OR_COLOUR = re.compile(f"({_COLOUR})|{_CONTROL.pattern}")
_RESET = "\x1b[0m"


def plain(line: str) -> str:
    """One line without control sequences, colours, and characters that reorder it. Tabs are kept."""
    return line if line.isprintable() else _CONTROL.sub("", line)


def with_colours(line: str) -> str:
    """As ``plain``, with its colours, which end with the line: what follows was written by others."""
    if line.isprintable():
        return line
    kept = _CONTROL_OR_COLOUR.sub(lambda found: found[1] or "", line)
    return f"{kept}{_RESET}" if "\x1b" in kept and not kept.endswith(_RESET) else kept
