"""Label and field selectors. What they do on a real server is in test_conformance; here is what needs no server."""

from typing import Any

import msgspec
import pytest

from trainmaster.local.apiserver.http.status import Refusal
from trainmaster.local.apiserver.objects.catalog import BUILT_IN
from trainmaster.local.apiserver.objects.selector import EVERYTHING, selection
from trainmaster.local.apiserver.store.store import Place, Stored

PODS, EVENTS = BUILT_IN[0], BUILT_IN[2]


def stored(labels: dict[str, str] | None = None, **more: Any) -> Stored:
    body = {"metadata": {"labels": labels} if labels is not None else {}, **more}
    return Stored(Place("pods", "n", "a"), 1, msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("a=b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a", {}, True),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b, c)", {}, False),
        ("a notin (b)", {}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("a in (in, notin)", {"a": "in"}, True),
        ("a>5", {"a": "6"}, True),
        ("a>5", {"a": "x"}, False),
        ("a<5", {"a": "-6"}, True),
        ("a=b,c=d", {"a": "b"}, False),
        ("a=b,c=d", {"a": "b", "c": "d"}, True),
        ("example.com/a=b", {"example.com/a": "b"}, True),
    ],
)
def test_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    assert selection(PODS, text, "").matches(stored(labels)) is matches


@pytest.mark.parametrize(
    ("text", "more", "matches"),
    [
        ("metadata.name=a", {}, True),
        ("metadata.name!=a", {}, False),
        ("metadata.namespace=n", {}, True),
        ("spec.nodeName=", {}, True),
        ("spec.nodeName=n1", {"spec": {"nodeName": "n1"}}, True),
        ("spec.nodeName=n1", {"spec": {}}, False),
        ("spec.hostNetwork=false", {"spec": {}}, True),
        ("spec.hostNetwork=true", {"spec": {"hostNetwork": True}}, True),
        ("status.phase!=Running,spec.nodeName=n1", {"spec": {"nodeName": "n1"}, "status": {"phase": "Failed"}}, True),
    ],
)
def test_fields(text: str, more: dict[str, Any], matches: bool) -> None:
    assert selection(PODS, "", text).matches(stored(**more)) is matches


def test_the_source_of_an_event_is_who_reported_it() -> None:
    assert selection(EVENTS, "", "source=x").matches(stored(source={"component": "x"}))
    assert selection(EVENTS, "", "source=y").matches(stored(reportingComponent="y"))


def test_an_escaped_character_is_meant_as_it_is() -> None:
    assert selection(EVENTS, "", r"reason=a\,b\=c\\").matches(stored(reason="a,b=c\\"))


def test_no_selector_selects_everything() -> None:
    assert selection(PODS, "", "") is EVERYTHING
    assert EVERYTHING.matches(stored())


@pytest.mark.parametrize(
    "text", ["a=b=c", "a in b", "a in (b", "(", ",", "a,", "a b", "!", "a>b", "-a", "a=-b", "a/b/c=d"]
)
def test_labels_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        selection(PODS, text, "")
    assert (refused.value.code, refused.value.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "text", ["a", "spec.odd=x", "metadata.labels=x", "metadata.name=a=b", "metadata.name=a\\", r"metadata.name=\a"]
)
def test_fields_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        selection(PODS, "", text)
    assert refused.value.code == 400
