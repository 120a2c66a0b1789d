"""Regular expressions mean what they mean in Kubernetes, or are refused."""

import re

import pytest

from trainmaster.local.apiserver.schema.pattern import compiled


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"^a+$", "aa", True),
        (r"^a+$", "aa\n", False),
        (r"b", "abc", True),
        (r"^\d+$", "٣", False),
        (r"^\w+$", "ä", False),
        (r"^[$]$", "$", True),
        (r"^\$$", "$", True),
        (r"^[]a]$", "]", True),
        (r"^[^]a]$", "]", False),
        (r"^[[]$", "[", True),
        (r"^[[:alpha:]_]+$", "ab_", True),
        (r"^[[:alpha:]]+$", "a1", False),
        (r"^[^[:digit:]]$", "1", False),
        (r"a\z", "ba", True),
        (r"(?i)^ab$", "AB", True),
        (r"^(?P<x>a)$", "a", True),
        (r"^(?:a|b){2}$", "ab", True),
        (r"^a[^$]*$", "ab", True),
    ],
)
def test_a_pattern_fits_or_not(pattern: str, text: str, fits: bool) -> None:
    assert (compiled(pattern).search(text) is not None) is fits


@pytest.mark.parametrize(
    "pattern", [r"(?=a)", r"(?!a)", r"(?<=a)", r"(a)\1", r"\pL", r"[[:odd:]]", r"(", r"[a", r"\Qa\E"]
)
def test_what_means_something_else_or_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        compiled(pattern)
