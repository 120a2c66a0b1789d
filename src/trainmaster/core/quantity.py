"""Amounts as Kubernetes writes them (``500m``, ``2``, ``1.5Gi``, ``1e3``), read exactly."""

import re
from decimal import ROUND_CEILING, Decimal

MAX_LENGTH = 32
LARGEST = Decimal(2**63 - 1)
"""What Kubernetes can still count."""

_SUFFIXES = {
    "": Decimal(1),
    **{letter: Decimal(1000) ** -power for power, letter in enumerate("mun", 1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_QUANTITY = re.compile(rf"(?P<number>{_NUMBER})(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|(?P<power>[eE][+-]?[0-9]{{1,2}}))?")


def amount_of(text: str) -> Decimal:
    """The amount; raises ``ValueError``, with a sentence, for what is none or cannot be had."""
    found = _QUANTITY.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise ValueError(f"{text[:MAX_LENGTH]!r} is not a quantity; write for example 500m, 2 or 1Gi")
    amount = Decimal(found["number"] + (found["power"] or "")) * _SUFFIXES[found["suffix"] or ""]
    if amount < 0:
        raise ValueError(f"{text!r} is less than nothing; leave it out to get what the template says")
    if amount > LARGEST:
        raise ValueError(f"{text!r} is more than can be counted")
    return amount


def rounded_up(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))
