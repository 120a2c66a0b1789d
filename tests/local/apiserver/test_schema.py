"""Structural schemas: ours and a real kube-apiserver drop, fill in and refuse the same."""

import copy
import json
import re
from typing import Any

import pytest

from testbed.plane import ControlPlane
from tests.local.apiserver.client import Client
from tests.manifests import good
from tests.manifests.bad import REJECTED_ROWS, Row
from tests.manifests.build import Manifest, resource_of
from tests.manifests.rules import RULES
from trainmaster.kinds import crd
from trainmaster.local.apiserver.objects import metadata
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.schema.schema import Structural

Object = dict[str, Any]
Causes = list[tuple[str, str, str]]

STRUCTURALS = {
    (f"{definition['spec']['group']}/{version['name']}", definition["spec"]["names"]["kind"]): Structural(
        version["schema"]["openAPIV3Schema"]
    )
    for definition in crd.all_crds()
    for version in definition["spec"]["versions"]
}


def ours(structural: Structural, obj: Object, old: Object | None = None) -> Causes:
    """The causes for which an object is refused, after it was pruned and filled in."""
    structural.prune(obj)
    structural.default(obj)
    found = structural.errors(obj, old, metadata.errors(obj["metadata"], is_custom=True))
    return _plain((each.field, each.reason, each.message) for each in found)


def theirs(body: Object) -> Causes:
    causes = (body.get("details") or {}).get("causes", [])
    return _plain((each.get("field", ""), each["reason"], each["message"]) for each in causes)


def _plain(causes: Any) -> Causes:
    """In one order, without repetition. Keys of a map come in no order, also where a message lists them."""
    return sorted({(field, reason, re.sub(r"\[(.*)\]", _sorted, message)) for field, reason, message in causes})


def _sorted(match: re.Match[str]) -> str:
    return "[" + ", ".join(sorted(match[1].split(", "))) + "]"


# The server refuses a body of five megabytes before anybody reads it.
READABLE_ROWS = [row for row in REJECTED_ROWS if "megabytes" not in row.id]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in READABLE_ROWS])
async def test_a_bad_job_is_refused_for_the_same_causes(row: Row, real: Client) -> None:
    job = copy.deepcopy(row.manifest)
    group, version, plural = resource_of(job).split("/")
    answer = await real.request("POST", f"/apis/{group}/{version}/namespaces/default/{plural}?dryRun=All", job)
    generated = re.search(r'"([^"]+)" is invalid', answer.body["message"])
    assert generated
    job["metadata"].setdefault("name", generated[1])

    by_schema = ours(STRUCTURALS[job["apiVersion"], job["kind"]], job)
    by_rule = [cause for cause in theirs(answer.body) if cause not in by_schema]

    assert set(by_schema) <= set(theirs(answer.body))
    assert all(_is_named_by_a_rule(plural, field) for field, _, _ in by_rule), by_rule


def _is_named_by_a_rule(plural: str, field: str) -> bool:
    """Rules are not evaluated here; tests/manifests/test_rules.py compares them with our validation."""
    named = {rule.field for rule in RULES if rule.definition.startswith(f"{plural}.")}
    return re.sub(r"\[[^\]]+\]", ".*", field) in named


@pytest.mark.parametrize("job", [pytest.param(job, id=job["metadata"]["name"]) for job in good.JOBS])
async def test_a_good_job_is_stored_as_by_a_real_api_server(job: Manifest, real: Client) -> None:
    mine = copy.deepcopy(job)
    group, version, plural = resource_of(job).split("/")

    assert ours(STRUCTURALS[job["apiVersion"], job["kind"]], mine) == []
    stored = await real.create(f"/apis/{group}/{version}/namespaces/default/{plural}?dryRun=All", job)
    assert mine["spec"] == stored["spec"]


# --- every word of a schema, on a resource of its own ---

GROUP = "schema.example.com"
PATH = f"/apis/{GROUP}/v1/namespaces/default/toys"


def typed(type_: str, **words: Any) -> Object:
    return {"type": type_, **words}


def an_object(**properties: Any) -> Object:
    return {"type": "object", "properties": properties}


KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
SPEC = an_object(
    text=typed("string", minLength=2, maxLength=4),
    pattern=typed("string", pattern="^a+$"),
    word=typed("string", enum=["a", "b"]),
    maybe=typed("string", enum=["a"], nullable=True),
    number=typed("number", minimum=1, maximum=2, exclusiveMinimum=True, exclusiveMaximum=True),
    integer=typed("integer", minimum=1, maximum=10, multipleOf=2),
    small=typed("integer", format="int32"),
    large=typed("integer", format="int64"),
    flag=typed("boolean"),
    items=typed("array", minItems=1, maxItems=2, items=typed("integer")),
    keyed=typed("array", items=an_object(name=typed("string"), value=typed("integer", maximum=5)), **KEYED)
    | {"items": {**an_object(name=typed("string"), value=typed("integer", maximum=5)), "required": ["name"]}},
    unique=typed("array", items=typed("string"), **{"x-kubernetes-list-type": "set"}),
    map=typed("object", additionalProperties=typed("integer"), minProperties=1, maxProperties=2),
    either={"x-kubernetes-int-or-string": True},
    free=typed("object", **{"x-kubernetes-preserve-unknown-fields": True})
    | {"properties": {"known": typed("integer")}},
    closed=an_object(a=an_object(b=typed("integer"))),
    embedded=typed("object", **{"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}),
    time=typed("string", format="date-time"),
    date=typed("string", format="date"),
    bytes=typed("string", format="byte"),
    odd=typed("string", format="odd"),
    filled=typed("integer", default=3),
    nested=an_object(deep=typed("string", default="x")) | {"default": {}},
    defaults=typed("array", items=an_object(a=typed("integer", default=1))),
    any=typed("string", anyOf=[{"minLength": 3}, {"pattern": "^x"}]),
    one=typed("string", oneOf=[{"minLength": 3}, {"pattern": "^x"}]),
    all=typed("integer", allOf=[{"minimum": 3}, {"maximum": 5}]),
    no=typed("integer", **{"not": {"minimum": 3}}),
    ruled=typed("integer", **{"x-kubernetes-validations": [{"rule": "self % 2 == 0"}]}),
)
TOY: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"toys.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "toys", "kind": "Toy", "singular": "toy", "listKind": "ToyList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": an_object(spec=SPEC)},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def toys(real_plane: ControlPlane) -> ControlPlane:
    """The real API server, once it serves the toy."""
    real_plane.apply(json.dumps(TOY))
    return real_plane


@pytest.fixture(scope="module")
def toy() -> Structural:
    return Structural(TOY["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def a_toy(**spec: Any) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Toy", "metadata": {"name": "x"}, "spec": spec}


TOYS: dict[str, Object] = {
    "nothing": a_toy(),
    "good": a_toy(text="abc", pattern="aa", word="a", number=1.5, integer=4, flag=True, items=[1], map={"a": 1}),
    "too-short": a_toy(text="a"),
    "too-long": a_toy(text="abcde"),
    "pattern": a_toy(pattern="b"),
    "pattern-with-a-newline": a_toy(pattern="a\n"),
    "word": a_toy(word="c"),
    "word-is-a-number": a_toy(word=1),
    "null-where-null-is-a-value": a_toy(maybe=None),
    "null-where-it-is-none": a_toy(word=None, filled=None, items=None, map={"a": None}),
    "null-in-a-list": a_toy(items=[None]),
    "below": a_toy(number=1, integer=0),
    "above": a_toy(number=2, integer=12),
    "no-multiple": a_toy(integer=3),
    "whole-number-with-a-point": a_toy(integer=4.0),
    "fraction": a_toy(integer=1.5),
    "fraction-of-a-format": a_toy(small=1.5, large=1.5),
    "flag-for-a-number": a_toy(small=True, integer=True),
    "string-for-a-number": a_toy(small="1", number="1"),
    "object-for-a-number": a_toy(small={}, number={}),
    "number-too-large": a_toy(small=2**31, large=2**31),
    "wrong-types": a_toy(text=1, flag="x", items={}, map=[], closed="x"),
    "too-few": a_toy(items=[], map={}),
    "too-many": a_toy(items=[1, 2, 3], map={"a": 1, "b": 2, "c": 3}),
    "wrong-items": a_toy(items=["a", 1], map={"a.b": "c"}),
    "keyed-twice": a_toy(keyed=[{"name": "a"}, {"name": "b"}, {"name": "a"}, {"name": "a"}]),
    "keyed-without-a-key": a_toy(keyed=[{"value": 1}]),
    "not-unique": a_toy(unique=["a", "b", "a"]),
    "either": a_toy(either=1),
    "or": a_toy(either="1"),
    "neither": a_toy(either=[]),
    "unknown-fields": a_toy(closed={"a": {"b": 1, "c": 2}, "d": {}}, e=1) | {"more": 1},
    "free-fields": a_toy(free={"known": 1, "unknown": {"a": [None]}}),
    "free-fields-of-a-wrong-type": a_toy(free={"known": "x"}),
    "embedded": a_toy(embedded={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"a": 1}}),
    "formats": a_toy(time="2026-11-15T12:00:00Z", date="2026-11-15", bytes="eA==", odd="x"),
    "bad-formats": a_toy(time="noon", date="today", bytes="!", odd=1),
    "defaults": a_toy(nested={}, defaults=[{}, {"a": 2}, {"a": None}]),
    "any": a_toy(any="ab"),
    "any-fits": a_toy(any="xb"),
    "none-of-one": a_toy(one="ab"),
    "two-of-one": a_toy(one="xbc"),
    "all": a_toy(all=6),
    "not": a_toy(no=3),
    "rules-are-not-checked": a_toy(ruled=3, word="c"),
    "label": {**a_toy(), "metadata": {"name": "x", "labels": {"a b": "c"}}},
}


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in TOYS.items()])
async def test_a_toy_is_stored_or_refused_as_by_a_real_api_server(
    body: Object, toy: Structural, toys: ControlPlane, real: Client
) -> None:
    mine = json.loads(json.dumps(body))
    answer = await real.request("POST", f"{PATH}?dryRun=All&fieldValidation=Ignore", body)

    assert ours(toy, mine) == theirs(answer.body)
    if answer.code < 300:
        assert mine["spec"] == answer.body["spec"]
        assert set(mine) == set(answer.body)


def test_what_was_bad_before_and_did_not_change_is_forgiven(toy: Structural) -> None:
    old = a_toy(text="a", keyed=[{"name": "a", "value": 9}], closed={"a": {"b": "x"}})
    new = a_toy(text="a", keyed=[{"name": "a", "value": 9}, {"name": "b", "value": 9}], closed={"a": {"b": "y"}})

    assert [each.field for each in toy.errors(new, old)] == ["spec.keyed[1].value", "spec.closed.a.b", "<nil>"]


def test_an_object_with_a_field_that_the_schema_does_not_know_counts_as_changed(toy: Structural) -> None:
    body = a_toy(free={"known": "x", "unknown": 1})
    known = a_toy(free={"known": "x"})

    assert [each.field for each in toy.errors(known, known)] == []
    # The field itself did not change, so it is forgiven all the same.
    assert [each.field for each in toy.errors(body, body)] == []


def test_pruning_names_what_it_drops(toy: Structural) -> None:
    body = a_toy(closed={"a": {"c": 2}}, keyed=[{"name": "a", "odd": 1}], e=1) | {"more": 1}

    assert toy.prune(body) == ["more", "spec.closed.a.c", "spec.e", "spec.keyed[0].odd"]


def test_a_cause_reads_as_kubectl_prints_it() -> None:
    assert str(Cause("spec.a", "FieldValueRequired", "Required value")) == "spec.a: Required value"
