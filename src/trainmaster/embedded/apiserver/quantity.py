"""Quantities of resources (``500m``, ``1Gi``) and the one form in which the API server stores each."""

import math
import re
from decimal import Context, Decimal, localcontext
from typing import Any

_QUANTITY = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIXES = {power: suffix for suffix, power in _BINARY.items()}
_EXPECTED = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class BadQuantity(ValueError):
    """Not a quantity; the message is the API server's."""

    def __init__(self) -> None:
        super().__init__(_EXPECTED)


def _parsed(text: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        raise BadQuantity
    sign, digits, suffix = match.groups(default="")
    number = Decimal(sign + digits)
    if suffix in _BINARY:
        return number * 1024 ** _BINARY[suffix], suffix
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    if abs(exponent) > _LARGEST_EXPONENT:
        raise BadQuantity
    return number.scaleb(exponent), suffix


_LARGEST_EXPONENT = 18
_SMALLEST = Decimal("1e-9")
_LONGEST = 64
# More digits than any amount of this length can have: nothing is ever rounded by accident.
_EXACT = Context(prec=2 * _LONGEST)


def number(value: Any) -> Decimal:
    """How much it is; raises BadQuantity."""
    with localcontext(_EXACT):
        return _parsed(_text(value))[0]


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadQuantity
    text = value if isinstance(value, str) else repr(value)
    if len(text) > _LONGEST:
        raise BadQuantity
    return text


def canonical(value: Any) -> str:
    """The form with the largest suffix that needs no fraction; raises BadQuantity.

    kube-apiserver keeps some odd spellings as they are (``+1``, ``01``); here they get the one form, too.
    """
    with localcontext(_EXACT):
        return _canonical(*_parsed(_text(value)))


def _canonical(amount: Decimal, suffix: str) -> str:
    amount = Decimal(math.ceil(amount / _SMALLEST)) * _SMALLEST if amount % _SMALLEST else amount
    if suffix in _BINARY and abs(amount) >= 1024 and amount == amount.to_integral_value():
        return _binary(amount)
    exponent = _exponent(amount)
    digits = int(amount.scaleb(-exponent))
    if suffix[:1] in ("e", "E") and suffix not in _DECIMAL:
        return f"{digits}e{exponent}" if exponent else str(digits)
    return f"{digits}{_SUFFIXES[exponent]}"


def _binary(amount: Decimal) -> str:
    digits, power = int(amount), 0
    while digits % 1024 == 0 and digits and power < max(_BINARY.values()):
        digits, power = digits // 1024, power + 1
    return f"{digits}{_BINARY_SUFFIXES.get(power, '')}"


def _exponent(amount: Decimal) -> int:
    """The largest multiple of three that leaves a whole number."""
    if not amount:
        return 0
    found = min(_DECIMAL.values())
    for exponent in sorted(_SUFFIXES):
        scaled = amount.scaleb(-exponent)
        if scaled == scaled.to_integral_value():
            found = exponent
    return found
