"""Whatever an author puts into one object, its watch line takes little of the event loop: nothing large is scanned."""

import json
from typing import Any

import pytest

from trainmaster.core import view as module
from trainmaster.core.ids import Key, Resource
from trainmaster.core.nesting import SCANNED, TOO_DEEP
from trainmaster.core.view import CHILD_CODEC, JOB_CODEC, POD_CODEC, SERVICE_CODEC, Codec, owned_by

JOB = Resource("elasticdeeplearning.ai", "v1", "aitrainingjobs", "AITrainingJob")
OWNER = {
    "apiVersion": "elasticdeeplearning.ai/v1",
    "kind": "AITrainingJob",
    "name": "j",
    "uid": "1",
    "controller": True,
}
LABELS = {f"label-{n:06}": "v" for n in range(80_000)}
DEEP = '{"a":' * 9000 + "1" + "}" * 9000
PHASE = {"phase": "Pending"}


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all that was scanned bracket by bracket."""
    sizes: list[int] = []

    def counted(name: str) -> Any:
        scan = getattr(module, name)

        def count(raw: bytes) -> Any:
            sizes.append(len(raw))
            return scan(raw)

        return count

    for name in ("members", "elements", "prune"):
        monkeypatch.setattr(module, name, counted(name))
    return sizes


def metadata(**first: Any) -> str:
    """In the order of an API server."""
    owners = {"ownerReferences": first.pop("owners")} if "owners" in first else {}
    found = {**first, "name": "x", "namespace": "ns", **owners, "resourceVersion": "77", "uid": "u"}
    return json.dumps(found, separators=(",", ":"))


def line(meta: str, rest: str, kind: str = "Pod", version: str = "v1") -> bytes:
    text = f'{{"type":"MODIFIED","object":{{"apiVersion":"{version}","kind":"{kind}","metadata":{meta},{rest}}}}}\n'
    return text.encode()


def job(spec: str, meta: str = "") -> bytes:
    status = json.dumps(PHASE, separators=(",", ":"))
    rest = f'"spec":{spec},"status":{status}'
    return line(meta or metadata(), rest, "AITrainingJob", "elasticdeeplearning.ai/v1")


@pytest.mark.parametrize("codec", [POD_CODEC, SERVICE_CODEC, CHILD_CODEC])
def test_an_object_of_a_stranger_is_dropped_by_its_metadata(codec: Codec[Any], scanned: list[int]) -> None:
    event = codec.only(owned_by([JOB])).line(line(metadata(labels=LABELS), '"spec":{}'))

    assert (event.type, event.view, event.resource_version) == ("DELETED", None, "77")
    assert event.unreadable is not None
    assert event.unreadable.key == Key("ns", "x")
    assert scanned == []


def test_labels_that_no_view_can_have_are_not_decoded(scanned: list[int]) -> None:
    """The owner is forged: its kind is one of ours."""
    event = POD_CODEC.only(owned_by([JOB])).line(line(metadata(labels=LABELS, owners=[OWNER]), '"spec":{}'))

    assert (event.type, event.view, event.resource_version) == ("MODIFIED", None, "77")
    assert event.unreadable is not None
    assert event.unreadable.error.startswith("its labels have ")
    assert scanned == []


@pytest.mark.parametrize(
    ("codec", "rest"),
    [
        pytest.param(CHILD_CODEC, {"data": {f"k{n}": "" for n in range(60_000)}}, id="keys of a ConfigMap"),
        pytest.param(CHILD_CODEC, {"spec": {f"k{n}": 1 for n in range(60_000)}}, id="fields of another child"),
        pytest.param(
            POD_CODEC,
            {"spec": {"containers": [{"name": f"c{n}", "image": "i"} for n in range(20_000)]}},
            id="containers",
        ),
    ],
)
def test_a_large_child_with_very_many_fields_is_not_decoded(
    codec: Codec[Any], rest: Any, scanned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is forged."""
    decoded: list[object] = []
    monkeypatch.setattr(codec, "_slim", decoded.append)
    text = json.dumps(rest, separators=(",", ":"))[1:-1]
    event = codec.only(owned_by([JOB])).line(line(metadata(owners=[OWNER]), text))

    assert (event.type, event.view, event.resource_version) == ("MODIFIED", None, "77")
    assert event.unreadable is not None
    assert "at most" in event.unreadable.error
    assert decoded == []
    assert scanned == []


def test_a_pod_with_as_many_variables_as_a_job_can_have_is_read() -> None:
    env = [{"name": f"A{n}", "value": "x"} for n in range(9000)]
    managed: dict[str, Any] = {f'k:{{"name":"A{n}"}}': {".": {}, "f:name": {}, "f:value": {}} for n in range(9000)}
    text = json.dumps({"spec": {"containers": [{"name": "a", "image": "i", "env": env}]}}, separators=(",", ":"))[1:-1]
    meta = metadata(managedFields=[{"fieldsV1": managed}], owners=[OWNER])

    assert POD_CODEC.line(line(meta, text)).view is not None


def test_a_large_child_with_long_values_is_read() -> None:
    """As the addresses of a job with many replicas are: quotes inside of strings do not count."""
    data = {"members.json": json.dumps({"members": [{"name": f"job-worker-{n}", "rank": n} for n in range(10_000)]})}
    text = json.dumps({"data": data}, separators=(",", ":"))[1:-1]

    assert CHILD_CODEC.line(line(metadata(owners=[OWNER]), text)).view is not None


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(f"{{{','.join(f'{chr(34)}v{n}{chr(34)}:{DEEP}' for n in range(25))}}}", id="25 deep values"),
        pytest.param(f'{{"a":{DEEP},"b":"{"x" * 1_150_000}"}}', id="one deep value and a long string"),
        pytest.param(f'{{"a":{DEEP},"b":[{",".join(["1"] * 400_000)}]}}', id="one deep value and many others"),
        pytest.param("[" * 9000 + "]" * 9000 + "".join([",[" + "[]," * 400_000 + "1]"]), id="brackets"),
    ],
)
def test_a_large_deep_job_is_refused_without_a_scan(spec: str, scanned: list[int]) -> None:
    event = JOB_CODEC.line(job(f'{{"replicaSpecs":[{spec}]}}'))

    assert (event.type, event.resource_version) == ("MODIFIED", "77")
    assert event.view is not None
    assert (event.view.key, event.view.uid, event.view.error) == (Key("ns", "x"), "u", TOO_DEEP)
    kept = json.loads(event.view.raw)
    assert (kept["spec"], kept["status"]) == ({}, PHASE)
    assert scanned == []


def test_a_small_deep_job_is_scanned_once_and_keeps_the_rest_of_its_spec(scanned: list[int]) -> None:
    deep = "[" * 5000 + "]" * 5000
    event = JOB_CODEC.line(job(f'{{"managedBy":"x.y/z","a":{deep}}}'))

    assert event.view is not None
    assert event.view.error == TOO_DEEP
    assert json.loads(event.view.raw)["spec"]["managedBy"] == "x.y/z"
    assert len(scanned) == 1
    assert scanned[0] <= SCANNED


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        pytest.param({f"k{n}": 1 for n in range(60_000)}, {}, id="at the top"),
        pytest.param({"a": {f"k{n}": 1 for n in range(60_000)}, "b": 2}, {}, id="below"),
        pytest.param({"a": "x" * 300_000, "b": 2}, {"a": None, "b": 2}, id="one long value"),
    ],
)
def test_a_large_value_is_not_looked_into_if_it_has_many_fields(spec: Any, kept: Any) -> None:
    event = JOB_CODEC.line(job(json.dumps(spec)))

    assert event.view is not None
    assert "a job may have 256 KiB" in event.view.error
    assert json.loads(event.view.raw)["spec"] == kept
