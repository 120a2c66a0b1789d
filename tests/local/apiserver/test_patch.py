"""JSON merge patch and JSON patch, by the examples of their RFCs."""

import copy
from typing import Any

import pytest

from trainmaster.local.apiserver.http.status import Refusal
from trainmaster.local.apiserver.objects.patch import MOST_OPERATIONS, apply_operations, merge


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_as_in_rfc_7396(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert merge(target, patch) == result
    assert target == before


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"foo": [1, 2, 3]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": [2, 3, 1]}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": [1]}, [{"op": "replace", "path": "/a/0", "value": 2}], {"a": [2]}),
    ],
)
def test_operations_as_in_rfc_6902(target: Any, operations: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert apply_operations(target, operations) == result
    assert target == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/absent/below", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "value": 1},
        {"op": "remove", "path": "/absent"},
        {"op": "remove", "path": "/list/1"},
        {"op": "remove", "path": "/list/-"},
        {"op": "replace", "path": "/absent", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "copy", "from": "/absent", "path": "/a"},
        {"op": "move", "from": "/map", "path": "/map/x"},
        {"op": "odd", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_an_operation_that_does_not_fit_is_refused(operation: Any) -> None:
    with pytest.raises(Refusal) as refused:
        apply_operations({"a": 1, "list": [1], "map": {}}, [operation])
    assert refused.value.code == 422


@pytest.mark.parametrize(("patch", "code"), [({}, 400), ([1], 400), ("x", 400), ([{}] * (MOST_OPERATIONS + 1), 413)])
def test_what_is_no_json_patch_is_refused(patch: Any, code: int) -> None:
    with pytest.raises(Refusal) as refused:
        apply_operations({}, patch)
    assert refused.value.code == code
