"""Values of CEL and what can be done with them: the functions and operators that Kubernetes' rules may use.

A value is what JSON gives, and besides it Optional, datetime (timestamp), timedelta (duration) and bytes. Python's
bool is an int and 1 == 1.0 == True; in CEL none of that holds, so every operator asks for the types first.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from trainmaster.local.apiserver.objects.field_error import quoted
from trainmaster.local.apiserver.schema import pattern

Value = Any
Function = Callable[..., Value]

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


class CelError(Exception):
    """An expression that cannot be read, or that has no value for this object."""


class Optional(NamedTuple):
    """A value that may be absent."""

    has_value: bool = False
    value: Value = None


NONE = Optional()

_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (Optional, "optional"),
    (list, "list"),
    (dict, "map"),
    (datetime, "timestamp"),
    (timedelta, "duration"),
)


def kind(value: Value) -> str:
    """The CEL type of a value."""
    return next((name for each, name in _KINDS if isinstance(value, each)), "null_type")


def no_overload(name: str, *arguments: Value) -> CelError:
    return CelError(f"no such overload: {name}({', '.join(kind(each) for each in arguments)})")


# -- operators -------------------------------------------------------------------------------------------------


def is_equal(left: Value, right: Value) -> bool:
    """Numbers compare across their types; everything else is equal only to its own kind."""
    kinds = {kind(left), kind(right)}
    if kinds == {"int", "double"}:
        return bool(left == right)
    if len(kinds) > 1:
        return False
    if isinstance(left, Optional):
        return left.has_value == right.has_value and is_equal(left.value, right.value)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_equal, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_equal(value, right[key]) for key, value in left.items())
    return bool(left == right)


_ORDERED = frozenset({"bool", "int", "double", "string", "bytes", "timestamp", "duration"})


def _ordered(name: str, compare: Callable[[Value, Value], bool]) -> Function:
    def apply(left: Value, right: Value) -> bool:
        kinds = {kind(left), kind(right)}
        if kinds == {"int", "double"} or (len(kinds) == 1 and kinds <= _ORDERED):
            return compare(left, right)
        raise no_overload(name, left, right)

    return apply


def _int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def _add(left: Value, right: Value) -> Value:
    match kind(left), kind(right):
        case "int", "int":
            return _int(left + right)
        case ("double", "double") | ("string", "string") | ("bytes", "bytes") | ("list", "list"):
            return left + right
        case ("timestamp", "duration") | ("duration", "timestamp") | ("duration", "duration"):
            return left + right
    raise no_overload("_+_", left, right)


def _subtract(left: Value, right: Value) -> Value:
    match kind(left), kind(right):
        case "int", "int":
            return _int(left - right)
        case ("double", "double") | ("timestamp", "timestamp") | ("timestamp", "duration") | ("duration", "duration"):
            return left - right
    raise no_overload("_-_", left, right)


def _multiply(left: Value, right: Value) -> Value:
    match kind(left), kind(right):
        case "int", "int":
            return _int(left * right)
        case "double", "double":
            return left * right
    raise no_overload("_*_", left, right)


def _truncated(left: int, right: int) -> int:
    """Go's division rounds toward zero; Python's toward minus infinity."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide(left: Value, right: Value) -> Value:
    match kind(left), kind(right):
        case "int", "int":
            if right == 0:
                raise CelError("division by zero")
            return _int(_truncated(left, right))
        case "double", "double":
            if right == 0:
                return float("nan") if left == 0 or left != left else float("inf") * (1 if left > 0 else -1)
            return left / right
    raise no_overload("_/_", left, right)


def _modulo(left: Value, right: Value) -> Value:
    if kind(left) != "int" or kind(right) != "int":
        raise no_overload("_%_", left, right)
    if right == 0:
        raise CelError("modulus by zero")
    return left - right * _truncated(left, right)


def _is_in(item: Value, container: Value) -> bool:
    if isinstance(container, dict):
        return _hashable(item) and item in container
    if isinstance(container, list):
        return any(is_equal(item, each) for each in container)
    raise no_overload("@in", item, container)


def _hashable(value: Value) -> bool:
    return isinstance(value, str | int | float | bool)


BINARY: dict[str, Function] = {
    "==": is_equal,
    "!=": lambda left, right: not is_equal(left, right),
    "<": _ordered("_<_", lambda left, right: left < right),
    "<=": _ordered("_<=_", lambda left, right: left <= right),
    ">": _ordered("_>_", lambda left, right: left > right),
    ">=": _ordered("_>=_", lambda left, right: left >= right),
    "in": _is_in,
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _modulo,
}


def negate(value: Value) -> Value:
    if kind(value) == "int":
        return _int(-value)
    if kind(value) in ("double", "duration"):
        return -value
    raise no_overload("-_", value)


# -- access ----------------------------------------------------------------------------------------------------


def select(operand: Value, key: Value) -> Value:
    """``operand.key`` or ``operand[key]``. In an optional it stays optional: the absent spreads."""
    if isinstance(operand, Optional):
        return select_optional(operand, key)
    if isinstance(operand, dict) and _hashable(key):
        if key in operand:
            return operand[key]
        raise CelError(f"no such key: {key}")
    if isinstance(operand, list) and kind(key) == "int":
        if 0 <= key < len(operand):
            return operand[key]
        raise CelError(f"index out of bounds: {key}")
    raise no_overload("_[_]", operand, key)


def select_optional(operand: Value, key: Value) -> Optional:
    """``operand.?key`` or ``operand[?key]``."""
    if isinstance(operand, Optional):
        return select_optional(operand.value, key) if operand.has_value else NONE
    if isinstance(operand, dict) and _hashable(key):
        return Optional(True, operand[key]) if key in operand else NONE
    if isinstance(operand, list) and kind(key) == "int":
        return Optional(True, operand[key]) if 0 <= key < len(operand) else NONE
    raise no_overload("_?._", operand, key)


# -- functions -------------------------------------------------------------------------------------------------


def _typed(name: str, function: Function, *kinds: str) -> Function:
    """A function that takes exactly these types; ``any`` takes all."""

    def apply(*arguments: Value) -> Value:
        if len(arguments) != len(kinds) or any(
            wanted not in ("any", kind(given)) for wanted, given in zip(kinds, arguments, strict=True)
        ):
            raise no_overload(name, *arguments)
        return function(*arguments)

    return apply


def _size(value: Value) -> int:
    if kind(value) in ("string", "bytes", "list", "map"):
        return len(value)
    raise no_overload("size", value)


_NUMBER = re.compile(r"[+-]?[0-9]+")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def to_int(value: Value) -> int:
    match kind(value):
        case "int":
            return int(value)
        case "double" if value == value and abs(value) < 2.0**63:
            return int(value)
        case "string" if _NUMBER.fullmatch(value):
            return _int(int(value))
        case "timestamp":
            return int(value.timestamp())
    raise CelError(f"type conversion error from '{kind(value)}' to 'int'")


def _to_double(value: Value) -> float:
    if kind(value) in ("int", "double", "string"):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise CelError(f"type conversion error from '{kind(value)}' to 'double'")


def _to_bool(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "True": True, "t": True, "1": True, "false": False, "False": False, "f": False, "0": False}
    if isinstance(value, str) and value in words:
        return words[value]
    raise CelError(f"type conversion error from '{kind(value)}' to 'bool'")


def to_string(value: Value) -> str:
    match kind(value):
        case "string":
            return str(value)
        case "bool":
            return "true" if value else "false"
        case "int":
            return str(value)
        case "double":
            return _double_text(value)
        case "bytes":
            return bytes(value).decode(errors="replace")
        case "timestamp":
            return str(value.astimezone(UTC).isoformat()).replace("+00:00", "Z")
        case "duration":
            return f"{_double_text(value.total_seconds())}s"
    raise CelError(f"type conversion error from '{kind(value)}' to 'string'")


def _double_text(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e21 else repr(value)


def to_timestamp(value: Value) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise CelError(f"type conversion error from '{kind(value)}' to 'google.protobuf.Timestamp'") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def to_duration(value: Value) -> timedelta:
    if isinstance(value, timedelta):
        return value
    text = value.lstrip("+-") if isinstance(value, str) else ""
    if text == "0":
        return timedelta()
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise CelError(f"type conversion error from '{kind(value)}' to 'google.protobuf.Duration'")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return timedelta(seconds=-seconds if value.startswith("-") else seconds)


def _matches(text: Value, regex: Value) -> bool:
    if kind(text) != "string" or kind(regex) != "string":
        raise no_overload("matches", text, regex)
    try:
        return pattern.compiled(regex).search(text) is not None
    except re.error as error:
        raise CelError(f"error parsing regexp: {error}") from error


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise CelError(f"index out of range: {start if not 0 <= start <= len(text) else stop}")
    return text[start:stop]


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    parts = text.split(separator, limit - 1 if limit > 0 else -1) if separator else list(text)
    return parts if separator or limit < 0 else [*parts[: limit - 1], "".join(parts[limit - 1 :])]


def _join(texts: Value, separator: str = "") -> str:
    if not all(isinstance(each, str) for each in texts):
        raise no_overload("join", texts)
    return separator.join(texts)


def _extreme(name: str, compare: str) -> Function:
    def apply(values: Value) -> Value:
        if not isinstance(values, list):
            raise no_overload(name, values)
        if not values:
            raise CelError(f"{name} called on empty list")
        best = values[0]
        for each in values[1:]:
            best = each if BINARY[compare](each, best) else best
        return best

    return apply


def _sum(values: list[Value]) -> Value:
    total: Value = 0
    for index, each in enumerate(values):
        total = _add(total, each) if index else each
    return total


def _is_sorted(values: list[Value]) -> bool:
    return all(BINARY["<="](left, right) for left, right in pairwise(values))


def _index_of(values: Value, item: Value) -> int:
    if isinstance(values, str) and isinstance(item, str):
        return values.find(item)
    if isinstance(values, list):
        return next((index for index, each in enumerate(values) if is_equal(each, item)), -1)
    raise no_overload("indexOf", values, item)


def _last_index_of(values: Value, item: Value) -> int:
    if isinstance(values, str) and isinstance(item, str):
        return values.rfind(item)
    if isinstance(values, list):
        return next((index for index in reversed(range(len(values))) if is_equal(values[index], item)), -1)
    raise no_overload("lastIndexOf", values, item)


def _value_of(optional: Optional) -> Value:
    if not optional.has_value:
        raise CelError("optional.none() dereference")
    return optional.value


def _of_non_zero(value: Value) -> Optional:
    is_zero = value is None or (kind(value) != "timestamp" and not value)
    return NONE if is_zero else Optional(True, value)


_VERB = re.compile(r"%(?:(%)|(?:\.([0-9]+))?(.))", re.DOTALL)


def _format(template: Value, arguments: Value) -> str:
    if kind(template) != "string" or kind(arguments) != "list":
        raise no_overload("format", template, arguments)
    rest = iter(arguments)

    def one(match: re.Match[str]) -> str:
        percent, precision, verb = match.groups()
        if percent:
            return "%"
        try:
            argument = next(rest)
        except StopIteration:
            raise CelError("no arguments left for formatting clause") from None
        return _formatted(verb, argument, int(precision) if precision else 6)

    return _VERB.sub(one, template)


def _formatted(verb: str, value: Value, precision: int) -> str:
    match verb, kind(value):
        case "s", _:
            return shown(value, nested=False)
        case "d", "int":
            return str(value)
        case "f", "int" | "double":
            return f"{float(value):.{precision}f}"
        case "b", "int" | "bool":
            return f"{int(value):b}"
        case "o" | "x" | "X", "int":
            return f"{value:{verb}}"
        case "x" | "X", "string" | "bytes":
            text = (value.encode() if isinstance(value, str) else value).hex()
            return text if verb == "x" else text.upper()
    raise CelError(f"could not format {kind(value)} by %{verb}")


def shown(value: Value, *, nested: bool = True) -> str:
    """What ``%s`` makes of a value; strings inside of lists and maps have quotes."""
    match kind(value):
        case "string":
            return quoted(value) if nested else str(value)
        case "null_type":
            return "null"
        case "double" if nested:
            return f"{value:.6f}"
        case "list":
            return f"[{', '.join(map(shown, value))}]"
        case "map":
            return "{" + ", ".join(f"{shown(key)}:{shown(value[key])}" for key in sorted(value)) + "}"
    return to_string(value)


def _texts(name: str, function: Function, *more: str) -> Function:
    return _typed(name, function, "string", *more)


FUNCTIONS: dict[tuple[str, int], Function] = {
    ("size", 1): _size,
    ("int", 1): to_int,
    ("double", 1): _to_double,
    ("bool", 1): _to_bool,
    ("string", 1): to_string,
    ("bytes", 1): _typed("bytes", lambda text: text.encode(), "string"),
    ("timestamp", 1): to_timestamp,
    ("duration", 1): to_duration,
    ("dyn", 1): lambda value: value,
    ("type", 1): kind,
    ("matches", 2): _matches,
    ("optional.none", 0): lambda: NONE,
    ("optional.of", 1): lambda value: Optional(True, value),
    ("optional.ofNonZeroValue", 1): _of_non_zero,
}
"""What is called as ``name(argument, …)``, by name and count."""

METHODS: dict[tuple[str, int], Function] = {
    ("size", 0): _size,
    ("matches", 1): _matches,
    ("startsWith", 1): _texts("startsWith", str.startswith, "string"),
    ("endsWith", 1): _texts("endsWith", str.endswith, "string"),
    ("contains", 1): _texts("contains", lambda text, part: part in text, "string"),
    ("lowerAscii", 0): _texts("lowerAscii", lambda text: _ascii(text, str.lower)),
    ("upperAscii", 0): _texts("upperAscii", lambda text: _ascii(text, str.upper)),
    ("trim", 0): _texts("trim", str.strip),
    ("charAt", 1): _texts("charAt", _char_at, "int"),
    ("substring", 1): _texts("substring", _substring, "int"),
    ("substring", 2): _texts("substring", _substring, "int", "int"),
    ("replace", 2): _texts("replace", _replace, "string", "string"),
    ("replace", 3): _texts("replace", _replace, "string", "string", "int"),
    ("split", 1): _texts("split", _split, "string"),
    ("split", 2): _texts("split", _split, "string", "int"),
    ("format", 1): _format,
    ("find", 1): _texts("find", lambda text, regex: next(iter(_found(text, regex)), ""), "string"),
    ("findAll", 1): _texts("findAll", lambda text, regex: _found(text, regex), "string"),
    ("join", 0): _typed("join", _join, "list"),
    ("join", 1): _typed("join", _join, "list", "string"),
    ("indexOf", 1): _index_of,
    ("lastIndexOf", 1): _last_index_of,
    ("min", 0): _extreme("min", "<"),
    ("max", 0): _extreme("max", ">"),
    ("sum", 0): _typed("sum", _sum, "list"),
    ("isSorted", 0): _typed("isSorted", _is_sorted, "list"),
    ("hasValue", 0): _typed("hasValue", lambda optional: optional.has_value, "optional"),
    ("value", 0): _typed("value", _value_of, "optional"),
    ("orValue", 1): _typed("orValue", lambda it, other: it.value if it.has_value else other, "optional", "any"),
    ("or", 1): _typed("or", lambda it, other: it if it.has_value else other, "optional", "optional"),
    ("getSeconds", 0): _typed("getSeconds", lambda span: int(span.total_seconds()), "duration"),
}
"""What is called as ``value.name(argument, …)``, by name and count without the value."""


def _ascii(text: str, change: Callable[[str], str]) -> str:
    return "".join(change(char) if char.isascii() else char for char in text)


def _found(text: str, regex: str) -> list[str]:
    try:
        return [match[0] for match in pattern.compiled(regex).finditer(text)]
    except re.error as error:
        raise CelError(f"error parsing regexp: {error}") from error


def weight(values: Iterable[Value]) -> int:
    """What an operation on these costs besides its one step: long strings and lists are read through."""
    return sum(len(each) // 10 for each in values if isinstance(each, str | bytes | list | dict))


def iterated(value: Value) -> Sequence[Value]:
    """What a macro goes over: the elements of a list, the keys of a map."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value)
    raise no_overload("comprehension", value)
