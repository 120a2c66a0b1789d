"""Kubernetes' resource quantities (``500m``, ``2``, ``1.5Gi``, ``1e3``): exact parsing and the canonical form."""

import math
import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from typing import NamedTuple

MAX_LENGTH = 64
LARGEST = Decimal(2**63 - 1)
"""The largest amount that Kubernetes supports."""

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIXES = {power: suffix for suffix, power in _BINARY.items()}
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_QUANTITY = re.compile(rf"(?P<number>{_NUMBER})(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{{1,2}})?")
_SMALLEST = Decimal("1e-9")
# More digits than any amount of this length can have, so that nothing is rounded.
_EXACT = Context(prec=2 * MAX_LENGTH)


class Quantity(NamedTuple):
    amount: Decimal
    suffix: str
    """The original text. Its suffix decides between ``1Gi`` and ``1073741824`` in the canonical form."""


def parsed(text: str) -> Quantity:
    """Accepts any sign and size; raises ``ValueError`` if the text is not a quantity."""
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        raise ValueError(f"{text[:32]!r} is not a quantity; write for example 500m, 2 or 1Gi")
    number, suffix = Decimal(match["number"]), match["suffix"] or ""
    with localcontext(_EXACT):
        if suffix in _BINARY:
            return Quantity(number * 1024 ** _BINARY[suffix], suffix)
        return Quantity(number.scaleb(_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])), suffix)


def amount_of(text: str) -> Decimal:
    """The amount; raises ``ValueError`` if the text is not a quantity, is negative or is too large."""
    amount = parsed(text).amount
    if amount < 0:
        raise ValueError(f"{text!r} is negative; leave it out to use the template's value")
    if amount > LARGEST:
        raise ValueError(f"{text!r} is larger than Kubernetes supports")
    return amount


def total(parts: Iterable[Quantity]) -> Quantity:
    """The sum, in the format of the first part."""
    result = Quantity(Decimal(0), "")
    with localcontext(_EXACT):
        for number, part in enumerate(parts):
            result = Quantity(result.amount + part.amount, result.suffix if number else part.suffix)
    return result


def rounded_up(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))


def canonical(quantity: Quantity) -> str:
    """The form in which the API server stores it: with the largest suffix that needs no fraction.

    kube-apiserver keeps some spellings (``+1``, ``01``); here they get the canonical form, too.
    """
    amount, suffix = quantity
    with localcontext(_EXACT):
        amount = Decimal(math.ceil(amount / _SMALLEST)) * _SMALLEST if amount % _SMALLEST else amount
        if suffix in _BINARY and abs(amount) >= 1024 and amount == amount.to_integral_value():
            return _binary(int(amount))
        exponent = _exponent(amount)
        digits = int(amount.scaleb(-exponent))
    if suffix[:1] in ("e", "E") and suffix not in _DECIMAL:
        return f"{digits}e{exponent}" if exponent else str(digits)
    return f"{digits}{_DECIMAL_SUFFIXES[exponent]}"


def _binary(digits: int) -> str:
    power = 0
    while digits % 1024 == 0 and digits and power < max(_BINARY.values()):
        digits, power = digits // 1024, power + 1
    return f"{digits}{_BINARY_SUFFIXES.get(power, '')}"


def _exponent(amount: Decimal) -> int:
    """The largest multiple of three that leaves a whole number."""
    if not amount:
        return 0
    largest = min(_DECIMAL.values())
    for exponent in sorted(_DECIMAL_SUFFIXES):
        scaled = amount.scaleb(-exponent)
        if scaled == scaled.to_integral_value():
            largest = exponent
    return largest
