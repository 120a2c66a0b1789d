"""Quantities, as Kubernetes reads them."""

from decimal import Decimal

import pytest

from trainmaster.core.quantity import amount_of, canonical, parsed, rounded_up, total


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", "0"),
        ("2", "2"),
        ("+2", "2"),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("2.", "2"),
        ("500m", "0.5"),
        ("1u", "0.000001"),
        ("1n", "0.000000001"),
        ("1k", "1000"),
        ("1.5Gi", "1610612736"),
        ("1Ki", "1024"),
        ("1M", "1000000"),
        ("1E", "1000000000000000000"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("12e-1", "1.2"),
    ],
)
def test_a_quantity_is_read_exactly(text: str, amount: str) -> None:
    assert amount_of(text) == Decimal(amount)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a quantity"),
        ("plenty", "is not a quantity"),
        ("1 Gi", "is not a quantity"),
        ("1gi", "is not a quantity"),
        ("1Gib", "is not a quantity"),
        ("1e3k", "is not a quantity"),
        ("٣", "is not a quantity"),
        ("nan", "is not a quantity"),
        ("1" * 65, "is not a quantity"),
        ("-1", "is negative"),
        ("1e99", "is larger than Kubernetes supports"),
        ("9Ei", "is larger than Kubernetes supports"),
        ("1" * 64, "is larger than Kubernetes supports"),
    ],
)
def test_an_invalid_quantity_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        amount_of(text)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("1m", 1), ("1", 1), ("1.5", 2)])
def test_parts_of_a_gpu_are_rounded_up(text: str, number: int) -> None:
    assert rounded_up(amount_of(text)) == number


@pytest.mark.parametrize(
    ("parts", "together"),
    [
        ((), "0"),
        (("500m",), "500m"),
        (("500m", "500m"), "1"),
        (("500m", "1"), "1500m"),
        (("512Mi", "512Mi", "1Gi"), "2Gi"),
        (("1Gi", "1"), "1073741825"),
        (("1", "1Ki"), "1025"),
        (("0.1",) * 10, "1"),
    ],
)
def test_amounts_are_added_up_exactly_and_written_like_the_first(parts: tuple[str, ...], together: str) -> None:
    assert canonical(total(map(parsed, parts))) == together
