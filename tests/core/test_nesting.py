import msgspec
import pytest

from trainmaster.core.nesting import elements, members, prune, without_spec

DEEP = b'{"a":' * 9000 + b"1" + b"}" * 9000


@pytest.mark.parametrize(
    ("raw", "pruned"),
    [
        pytest.param(b'{"a":{"b":[1]},"c":2}', b'{"a":{"b":null},"c":2}', id="array"),
        pytest.param(b'{"a":{"b":{"c":[]}},"c":[3]}', b'{"a":{"b":null},"c":[3]}', id="object"),
        pytest.param(b'{"a":{"b":"}{[\\"]"}}', b'{"a":{"b":"}{[\\"]"}}', id="brackets in a string"),
        pytest.param(b'{"a":["\\\\",[1],[2]]}', b'{"a":["\\\\",null,null]}', id="a string that ends with a backslash"),
        pytest.param(b"[]", b"[]", id="nothing to prune"),
    ],
)
def test_everything_below_a_level_becomes_null(raw: bytes, pruned: bytes) -> None:
    assert prune(raw, 2) == pruned


def test_json_of_any_depth_can_be_pruned_and_then_decoded() -> None:
    raw = b'{"metadata":{"name":"x"},"spec":' + DEEP + b"}"

    with pytest.raises(RecursionError):
        msgspec.json.decode(raw)
    assert msgspec.json.decode(prune(raw))["metadata"] == {"name": "x"}


def test_members_are_those_of_the_object_itself() -> None:
    raw = b' {"a" : 1 , "b":[{"a":2}, "c:"] ,"":"y\\"","d":{"a":{"d":3}}, "e":null} '

    assert members(raw) == {b"a": b"1", b"b": b'[{"a":2}, "c:"]', b"": b'"y\\""', b"d": b'{"a":{"d":3}}', b"e": b"null"}
    assert members(b"{}") == {}
    assert members(b'{"spec":' + DEEP + b',"a":1}') == {b"spec": DEEP, b"a": b"1"}


def test_elements_are_the_objects_and_arrays_of_an_array() -> None:
    assert elements(b' [7, {"a":[1]} ,[2],"[]",' + DEEP + b"] ") == [b'{"a":[1]}', b"[2]", DEEP]
    assert elements(b"[]") == []


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"a":1', b'{"a":"}', b"[" * 9000, b'{"a":1}}', b'{"a":1} x', b"[1]]", b'"text"', b"7", b"null"],
)
def test_truncated_and_other_json_is_neither_object_nor_array(raw: bytes) -> None:
    for read in (members, elements):
        with pytest.raises(msgspec.DecodeError):
            read(raw)


@pytest.mark.parametrize("raw", [b"{", b'{"a":[1}', b"[" * 9000, b'{"a":"}'])
def test_truncated_json_cannot_be_pruned(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        prune(raw)


# --- objects as an API server writes them ---

HEAD = b'{"apiVersion":"g/v1","kind":"K","metadata":'
DEEP_MANAGED = b'"managedFields":[{"fieldsV1":{"f:spec":%s},"manager":"me"}],' % DEEP.replace(b'"a"', b'"f:a"')


@pytest.mark.parametrize(
    ("metadata", "rest", "kept"),
    [
        pytest.param(b'"name":"x"', b'"spec":%s' % DEEP, b'{"name":"x"},"spec":{},"status":{}', id="no status"),
        pytest.param(
            b'"name":"x"',
            b'"spec":%s,"status":{"phase":"A","conditions":[{"type":"B","status":"True"}]}' % DEEP,
            b'{"name":"x"},"spec":{},"status":{"phase":"A","conditions":[{"type":"B","status":"True"}]}',
            id="a status",
        ),
        pytest.param(
            DEEP_MANAGED + b'"name":"x"',
            b'"spec":{"a":%s},"status":{}' % DEEP,
            b'{"name":"x"},"spec":{},"status":{}',
            id="managedFields as deep as the spec",
        ),
        pytest.param(
            b'"labels":{"a":"},\\"spec\\":","managedFields":"[","spec":"y"},"name":"x"',
            b'"spec":%s' % DEEP,
            b'{"labels":{"a":"},\\"spec\\":","managedFields":"[","spec":"y"},"name":"x"},"spec":{},"status":{}',
            id="the same words in labels",
        ),
        pytest.param(
            b'"name":"x"',
            b'"spec":{"a":%s,"z":{"b":{},"status":{"phase":"Succeeded"}}}' % DEEP,
            b'{"name":"x"},"spec":{},"status":{}',
            id="a status inside of the spec",
        ),
        pytest.param(
            b'"name":"x"',
            b'"spec":{"a":%s,"metadata":{"name":"other"},"spec":{}},"status":{"phase":"A"}' % DEEP,
            b'{"name":"x"},"spec":{},"status":{"phase":"A"}',
            id="another object inside of the spec",
        ),
    ],
)
def test_metadata_and_status_of_a_deep_object_are_found_by_how_api_servers_write_it(
    metadata: bytes, rest: bytes, kept: bytes
) -> None:
    assert without_spec(HEAD + b"{" + metadata + b"}," + rest + b"}\n") == HEAD + kept + b"}"


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"metadata":{"name":"x"},"spec":{}}', HEAD + b'{"name":"x"}}'])
def test_an_object_that_is_written_otherwise_is_not_guessed(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        without_spec(raw)
