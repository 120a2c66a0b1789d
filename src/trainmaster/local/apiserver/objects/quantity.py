"""Quantities of resources in the objects that are stored, and the API server's words for what is none."""

from decimal import Decimal
from typing import Any

from trainmaster.core import quantity
from trainmaster.core.quantity import Quantity

_LARGEST_EXPONENT = 18
_EXPECTED = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class BadQuantity(ValueError):
    """Not a quantity; the message is the API server's."""

    def __init__(self) -> None:
        super().__init__(_EXPECTED)


def number(value: Any) -> Decimal:
    """How much it is; raises BadQuantity."""
    return _parsed(value).amount


def canonical(value: Any) -> str:
    """The one form of it; raises BadQuantity."""
    return quantity.canonical(_parsed(value))


def _parsed(value: Any) -> Quantity:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadQuantity
    try:
        found = quantity.parsed(value.strip() if isinstance(value, str) else repr(value))
    except ValueError:
        raise BadQuantity from None
    exponent = found.suffix[1:]
    if exponent.lstrip("+-").isdigit() and abs(int(exponent)) > _LARGEST_EXPONENT:
        raise BadQuantity
    return found
