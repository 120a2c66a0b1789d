"""What is wrong with one field of an object, in kube-apiserver's words: clients parse them, users search for them."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple


class Cause(NamedTuple):
    """One entry of a Status' ``details.causes``; its string is what the Status' message is made of."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


NOWHERE = "<nil>"
"""The field of a cause that concerns the whole object."""


def required(field: str, detail: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", _with_detail("Required value", detail))


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause(field, "FieldValueInvalid", _with_detail(f"Invalid value: {shown(value)}", detail))


def invalid_omitted(field: str, detail: str) -> Cause:
    """Of a value that is too big to be shown."""
    return Cause(field, "FieldValueInvalid", _with_detail("Invalid value", detail))


def wrong_type(field: str, value: Any, detail: str) -> Cause:
    return Cause(field, "FieldValueTypeInvalid", _with_detail(f"Invalid value: {shown(value)}", detail))


def unsupported_value(field: str, value: Any, supported: Iterable[str]) -> Cause:
    values = ", ".join(quoted(value) for value in supported)
    detail = f"supported values: {values}" if values else ""
    return Cause(field, "FieldValueNotSupported", _with_detail(f"Unsupported value: {shown(value)}", detail))


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def not_found(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueNotFound", f"Not found: {shown(value)}")


def forbidden(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueForbidden", _with_detail("Forbidden", detail))


def too_long(field: str, most: int) -> Cause:
    unit = "byte" if most == 1 else "bytes"
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {most} {unit}")


def too_many(field: str, count: int, most: int) -> Cause:
    unit = "item" if most == 1 else "items"
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {most} {unit}")


def shown(value: Any) -> str:
    """A value as Go prints it into an error."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e21 else repr(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def quoted(text: str) -> str:
    """A string as Go's %q writes it: printable runes stay, everything else is escaped."""
    return '"' + "".join(_ESCAPES.get(char) or _escaped(char) for char in text) + '"'


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _with_detail(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what
