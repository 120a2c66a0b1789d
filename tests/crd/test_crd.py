"""The generated definitions, without a cluster; tests/manifests holds them against a real API server."""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
import pytest
import yaml

from tests.manifests import good
from tests.manifests.bad import ROWS
from tests.manifests.build import Manifest
from trainmaster.core import template
from trainmaster.core.ids import Resource
from trainmaster.core.wire import ObjectMeta
from trainmaster.kinds import crd
from trainmaster.kinds.definition import Definition
from trainmaster.kinds.description import fields_of
from trainmaster.kinds.ditask import types as ditask
from trainmaster.kinds.mlkube import types as mlkube
from trainmaster.kinds.registry import DEFINITIONS
from trainmaster.kinds.schema import Schema
from trainmaster.lifecycle.restart import EXIT_CODES

LABEL_VALUE = "^([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?$"
DEPLOYED = Path(__file__).parents[2] / "deploy" / "crds.yaml"
KEEPS = "x-kubernetes-preserve-unknown-fields"

BY_KIND = {definition.resource.kind: definition for definition in DEFINITIONS}

each_definition = pytest.mark.parametrize("kind", list(BY_KIND))


def schema_of(kind: str) -> Schema:
    version = crd.crd(BY_KIND[kind])["spec"]["versions"][0]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def field_of(kind: str, path: str) -> Schema:
    """The schema of a field; `*` is any key of a map and any item of a list."""
    schema = schema_of(kind)
    for step in path.split("."):
        inner: Any = schema.get("additionalProperties") or schema.get("items")
        schema = inner if step == "*" else schema["properties"][step]
    return schema


def undescribed(schema: Schema) -> Schema:
    """The schema of a field without its description."""
    return {keyword: value for keyword, value in schema.items() if keyword != "description"}


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from nodes(schema[keyword], f"{path}.*")


# --- the definition around the schema -----------------------------------------------------------------------------


def test_an_mxjob_always_has_a_run_policy_because_the_kubeflow_client_reads_no_job_without_one() -> None:
    assert field_of("MXJob", "spec.runPolicy")["default"] == {}


SUMMARY = [
    ("Ready", ".status.summary.ready"),
    ("Restarts", ".status.summary.restarts"),
    ("Message", ".status.summary.message"),
]


@pytest.mark.parametrize(
    ("kind", "name", "names", "columns"),
    [
        pytest.param(
            "DIJob",
            "dijobs.diengine.opendilab.org",
            ("dijobs", "dijob", "DIJobList", ["dijob"]),
            [("Phase", ".status.phase"), ("Age", ".metadata.creationTimestamp"), *SUMMARY],
            id="DIJob",
        ),
        pytest.param(
            "AITrainingJob",
            "aitrainingjobs.elasticdeeplearning.ai",
            ("aitrainingjobs", "aitrainingjob", "AITrainingJobList", ["aitj"]),
            [
                ("Phase", ".status.phase"),
                ("Age", ".metadata.creationTimestamp"),
                *SUMMARY,
            ],
            id="AITrainingJob",
        ),
        pytest.param(
            "NerveXJob",
            "nervexjobs.nervex.sensetime.com",
            ("nervexjobs", "nervexjob", "NerveXJobList", ["nvxjob"]),
            [("Phase", ".status.phase"), ("Age", ".metadata.creationTimestamp"), *SUMMARY],
            id="NerveXJob",
        ),
        pytest.param(
            "MxJob",
            "mxjobs.mlkube.io",
            ("mxjobs", "mxjob", "MxJobList", ["mlmxj"]),
            [
                ("Mode", ".spec.jobMode"),
                ("Phase", ".status.phase"),
                ("State", ".status.state"),
                ("Age", ".metadata.creationTimestamp"),
                *SUMMARY,
                ("Reason", ".status.reason"),
            ],
            id="MxJob",
        ),
    ],
)
def test_a_kind_keeps_its_names_and_columns(
    kind: str, name: str, names: tuple[Any, ...], columns: list[tuple[str, str]]
) -> None:
    definition = crd.crd(BY_KIND[kind])

    found = definition["spec"]["names"]
    version = definition["spec"]["versions"][0]
    assert definition["metadata"]["name"] == name
    assert (found["plural"], found["singular"], found["listKind"], found["shortNames"]) == names
    assert [(c["name"], c["jsonPath"]) for c in version["additionalPrinterColumns"]] == columns


@each_definition
def test_get_all_lists_jobs(kind: str) -> None:
    found = crd.crd(BY_KIND[kind])["spec"]["names"].get("categories", [])

    assert found == ([] if kind == "AggregatorConfig" else ["all"])


@each_definition
def test_status_is_a_subresource_and_spec_is_required(kind: str) -> None:
    version = crd.crd(BY_KIND[kind])["spec"]["versions"][0]

    assert version["subresources"].pop("status") == {}
    assert schema_of(kind)["required"] == ["spec"]


@each_definition
def test_only_the_elastic_replica_of_an_aitrainingjob_and_a_task_of_a_dijob_can_be_scaled(kind: str) -> None:
    fields = {
        "AITrainingJob": (".spec.elasticReplicas", ".status.elasticReplicas", ".status.selector"),
        "DIJob": (".spec.replicas", ".status.scaledReplicas", ".status.selector"),
    }

    found = crd.crd(BY_KIND[kind])["spec"]["versions"][0]["subresources"].get("scale", {})

    words = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    assert found == dict(zip(words, fields.get(kind, ()), strict=False))


@each_definition
def test_a_definition_fits_into_the_annotation_of_kubectl_apply_twice(kind: str) -> None:
    assert len(json.dumps(crd.crd(BY_KIND[kind]))) < 262_144 / 2


# --- YAML ---------------------------------------------------------------------------------------------------------


def test_yaml_says_the_same_as_the_definitions() -> None:
    assert tuple(yaml.safe_load_all(crd.to_yaml())) == crd.all_crds()


def test_yaml_is_the_same_in_every_process() -> None:
    program = "from trainmaster.kinds import crd; print(crd.to_yaml(), end='')"

    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)

        assert done.stdout == crd.to_yaml()


def test_yaml_is_for_reading() -> None:
    text = crd.to_yaml()

    assert text.count("\n---\n") == len(DEFINITIONS)
    assert "&id" not in text


def test_the_deployed_file_is_fresh() -> None:
    assert DEPLOYED.read_text() == crd.to_yaml(), f"{DEPLOYED} is stale: run make generate"


# --- the schema ---------------------------------------------------------------------------------------------------


@each_definition
def test_a_schema_is_structural(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        assert "$ref" not in schema, path
        if set(schema) - {"description"} in ({"x-kubernetes-int-or-string"}, {KEEPS}):
            continue  # the only things without a type
        assert schema["type"] in {"object", "array", "string", "integer", "boolean"}, path
        assert not {"properties", "additionalProperties"} <= set(schema), path
        assert ("items" in schema) == (schema["type"] == "array"), path


@each_definition
def test_unknown_fields_are_kept_at_every_level_of_templates_and_volumes_and_nowhere_else(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        if "properties" in schema:
            is_template = ".template" in path or ".aggregatorTemplate" in path
            is_users_own = is_template or path.startswith(".spec.volumes")
            assert schema.get(KEEPS, False) is is_users_own, path


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: str(definition.resource))
def test_every_number_has_a_minimum_and_a_maximum(definition: Definition) -> None:
    """Those of a template that are not named here are checked by the API server when the pod is created."""
    for version in crd.crd(definition)["spec"]["versions"]:
        numbers = [(p, n) for p, n in nodes(version["schema"]["openAPIV3Schema"]) if n.get("type") == "integer"]
        unbounded = [path for path, number in numbers if not {"minimum", "maximum"} <= number.keys()]

        assert (bool(numbers), unbounded) == (True, [])


@each_definition
def test_every_field_has_a_description(kind: str) -> None:
    for path, schema in nodes(schema_of(kind)):
        is_field = not path.endswith("*")
        is_described_by_kubernetes = path.startswith(".metadata")
        if is_field and not is_described_by_kubernetes:
            assert re.fullmatch(r"\S.*\.", schema.get("description", "")), path


def test_the_description_of_a_field_is_the_text_behind_it_with_its_default() -> None:
    found = field_of("AITrainingJob", "spec.replicaSpecs.*.restartScope")["description"]

    assert found.startswith("Which pods restart with a failed pod. All: all pods of the job.")
    assert found.endswith("Pod: the failed pod alone. Default: All.")


def test_a_type_inherits_descriptions_and_replaces_those_of_its_own_fields() -> None:
    old, new = fields_of(ditask.DITaskSpec), fields_of(ditask.UnionSpec)

    assert new["backoff_limit"] == old["backoff_limit"]
    assert new["coordinator"] != old["coordinator"]


def test_a_type_without_a_source_file_has_no_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "without_source", ModuleType("without_source"))

    assert fields_of(msgspec.defstruct("Job", [("spec", str)], module="without_source")) == {}


INT32 = {"type": "integer", "format": "int32"}
INT64 = {"type": "integer", "format": "int64"}
NUMBER = {**INT64, "minimum": 0, "maximum": 2**31 - 1}
TEXT = {"type": "string"}
TIME = {"type": "string", "format": "date-time"}
PORT = {**INT32, "minimum": 1, "maximum": 65535}
COUNT = {**INT32, "minimum": 0, "maximum": 10_000}
END_POLICY = {"type": "string", "enum": ["All", "Any", "None", "Rank0"]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.group", TEXT),
        ("spec.priorityClassName", TEXT),
        ("spec.cleanPodPolicy", {"type": "string", "enum": ["", "ALL", "All", "None", "Running"]}),
        ("spec.volumes.*.name", TEXT),
        ("spec.coordinator.template.spec.containers.*.name", TEXT),
        ("spec.collector.template.spec.containers.*.ports.*.containerPort", PORT),
        ("spec.learner.template.spec.containers.*.env.*.name", TEXT),
        ("status.phase", TEXT),
        ("status.observedGeneration", {**INT64, "minimum": 0, "maximum": 2**53 - 1}),
        ("status.conditions.*.type", TEXT),
        ("status.conditions.*.status", TEXT),
        ("status.conditions.*.reason", TEXT),
        ("status.conditions.*.message", TEXT),
        ("status.conditions.*.lastUpdateTime", TIME),
        ("status.conditions.*.lastTransitionTime", TIME),
        ("status.replicaStatus.*.active", NUMBER),
        ("status.replicaStatus.*.succeeded", NUMBER),
        ("status.replicaStatus.*.failed", NUMBER),
        ("status.ports.*.*", PORT),
        ("spec.coordinator.template.spec.hostNetwork", {"type": "boolean"}),
    ],
)
def test_dijob_has_the_field(path: str, expected: Schema) -> None:
    assert undescribed(field_of("DIJob", path)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.restartingExitCode", {**TEXT, "maxLength": 512, "pattern": EXIT_CODES}),
        ("spec.frameworkType", TEXT),
        ("spec.faultTolerant", {"type": "boolean"}),
        ("spec.priority", {**TEXT, "maxLength": 63, "pattern": LABEL_VALUE}),
        ("spec.schedulerName", TEXT),
        ("spec.timeLimit", {**INT64, "minimum": 1, "maximum": 2**31 - 1}),
        (
            "spec.cleanPodPolicy",
            {"type": "string", "enum": ["All", "CleanPodPolicyAll", "CleanPodPolicyNone", "None", "Running"]},
        ),
        ("spec.failPolicy", END_POLICY),
        ("spec.completePolicy", END_POLICY),
        ("spec.elasticReplicas", {**INT32, "minimum": 1, "maximum": 10_000}),
        ("spec.replicaSpecs.*.minReplicas", COUNT),
        ("spec.replicaSpecs.*.maxReplicas", COUNT),
        ("spec.replicaSpecs.*.replicas", COUNT),
        ("spec.replicaSpecs.*.restartLimit", {**INT32, "minimum": 0, "maximum": 2**31 - 1}),
        ("spec.replicaSpecs.*.restartScope", {"type": "string", "enum": ["All", "Pod", "Replica"]}),
        (
            "spec.replicaSpecs.*.restartPolicy",
            {
                "type": "string",
                "enum": ["Always", "ExitCode", "Never", "OnFailure", "OnNodeFail", "OnNodeFailWithExitCode"],
            },
        ),
        ("spec.replicaSpecs.*.failPolicy", END_POLICY),
        ("spec.replicaSpecs.*.completePolicy", END_POLICY),
        ("spec.replicaSpecs.*.edlPolicy", {"type": "string", "enum": ["Auto", "Manual", "Never"]}),
        ("spec.replicaSpecs.*.template.spec.initContainers.*.name", TEXT),
        ("status.phase", TEXT),
        ("status.conditions.*.lastProbeTime", TIME),
        ("status.replicaStatuses.*.scheduled", NUMBER),
        ("status.elasticReplicas", NUMBER),
        ("status.selector", TEXT),
        ("status.ports.*.*", PORT),
        ("status.startTime", TIME),
        ("status.startRunningTime", TIME),
        ("status.endTime", TIME),
    ],
)
def test_aitrainingjob_has_the_field(path: str, expected: Schema) -> None:
    assert undescribed(field_of("AITrainingJob", path)) == expected


@pytest.mark.parametrize(
    ("kind", "path", "required"),
    [
        ("DIJob", "spec.tasks.*", ["template"]),
        ("DIJob", "spec.coordinator", ["template"]),
        ("DIJob", "spec.coordinator.template.spec", ["containers"]),
        ("DIJob", "status.conditions.*", ["type", "status"]),
        ("AITrainingJob", "spec", ["replicaSpecs"]),
        ("AITrainingJob", "spec.replicaSpecs.*", ["template"]),
    ],
)
def test_what_must_be_written_is_required_and_nothing_else(kind: str, path: str, required: list[str]) -> None:
    assert field_of(kind, path)["required"] == required


@pytest.mark.parametrize("noun", ["containers", "initContainers", "volumes"])
def test_named_things_of_a_pod_are_keyed_by_name(noun: str) -> None:
    found = field_of("DIJob", f"spec.coordinator.template.spec.{noun}")

    assert (found["x-kubernetes-list-type"], found["x-kubernetes-list-map-keys"]) == ("map", ["name"])


# --- the generator ------------------------------------------------------------------------------------------------


class Point(msgspec.Struct, rename="camel"):
    """Where it is,
    in two dimensions."""

    x_axis: int
    y_axis: int = 0


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        pytest.param(str, {"type": "string"}, id="str"),
        pytest.param(
            Annotated[str, msgspec.Meta(min_length=1, max_length=9, pattern="^a")],
            {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a"},
            id="bounded-str",
        ),
        pytest.param(bool | None, {"type": "boolean"}, id="optional"),
        pytest.param(int, INT64, id="int"),
        pytest.param(Annotated[int, msgspec.Meta(ge=1)], {**INT64, "minimum": 1}, id="int-without-upper-bound"),
        pytest.param(Annotated[int, msgspec.Meta(le=2**31)], {**INT64, "maximum": 2**31}, id="int-beyond-32-bits"),
        pytest.param(Literal["b", "a"], {"type": "string", "enum": ["a", "b"]}, id="words"),
        pytest.param(datetime, TIME, id="time"),
        pytest.param(
            Annotated[list[str], msgspec.Meta(min_length=1, max_length=9)],
            {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 9},
            id="bounded-list",
        ),
        pytest.param(tuple[str, ...], {"type": "array", "items": TEXT}, id="tuple"),
        pytest.param(
            Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=9)],
            {"type": "object", "additionalProperties": TEXT, "minProperties": 1, "maxProperties": 9},
            id="bounded-map",
        ),
        pytest.param(
            Point,
            {
                "type": "object",
                "required": ["xAxis"],
                "properties": {"xAxis": INT64, "yAxis": INT64},
            },
            id="struct",
        ),
        pytest.param(
            Annotated[dict[str, Any], msgspec.Meta(extra={"schema": Point})],
            {
                "type": "object",
                "required": ["xAxis"],
                "properties": {"xAxis": INT64, "yAxis": INT64},
                KEEPS: True,
                "x-kubernetes-map-type": "atomic",
            },
            id="struct-of-the-users-own",
        ),
    ],
)
def test_a_type_has_the_schema(type_: Any, expected: Schema) -> None:
    assert _spec_schema(type_) == expected


@pytest.mark.parametrize("type_", [pytest.param(float, id="float"), pytest.param(dict[str, Any], id="anything")])
def test_a_type_that_has_no_schema_is_an_error(type_: Any) -> None:
    with pytest.raises(TypeError, match="has no schema"):
        _spec_schema(type_)


def _spec_schema(type_: Any) -> Schema:
    job = msgspec.defstruct("Job", [("metadata", ObjectMeta), ("spec", type_)])
    definition = crd.crd(Definition(resource=Resource("example.com", "v1", "jobs", "Job"), job=job, columns=()))
    schema: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


# --- schema and decoder agree -------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", [pytest.param(job, id=job["metadata"]["name"]) for job in good.JOBS])
def test_a_good_job_fits_its_schema(job: Manifest) -> None:
    assert _schema_accepts(job)


def test_the_schema_of_an_mxjob_of_mlkube_allows_fewer_replicas_than_a_job_may_have() -> None:
    number = field_of("MxJob", "spec.replicaSpecs.*.replicas")["maximum"]
    roles = field_of("MxJob", "spec.replicaSpecs")["maxItems"]

    assert number * roles <= 10_000


# Only the schema asks for the name of a volume: a decoder that did would have to know more of volumes than we need.
# Only the schema has a pattern for exit codes: `validate` can say what is wrong with one, a decoder cannot. And for
# managers: a job of somebody else, whatever his name, is not ours to judge. And a maximum of deadlines: a job that was
# stored with a longer one is still run.
STRICTER = {
    "dijob-job-volume-without-a-name",
    "aitrainingjob-exit-code-is-a-word",
    "aitrainingjob-exit-code-above-255",
    "aitrainingjob-exit-codes-without-a-comma",
    "aitrainingjob-exit-code-is-negative",
    "mlkube-no-exit-code",
    "aitrainingjob-manager-without-a-domain",
}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS if row.id not in STRICTER])
def test_schema_and_decoder_agree_on_a_bad_job(row: Any) -> None:
    job = row.manifest | {"metadata": {"name": "job"}}

    assert _schema_accepts(job) == _decoder_accepts(job)


@pytest.mark.parametrize("job", [pytest.param(good.PARALLEL, id="DIJob"), pytest.param(good.MNIST, id="AITrainingJob")])
@pytest.mark.parametrize("value", [True, -1, 0, 7, 100_000, 2**40, 1.5, "", "All", [], [7], [{}], {}, {"a": 7}])
def test_schema_and_decoder_agree_wherever_one_value_stands_in_for_another(job: Manifest, value: Any) -> None:
    for changed, path in _changed(job["spec"], value):
        if not path.startswith((".volumes", ".restartingExitCode", ".managedBy", ".timeLimit")):  # see STRICTER
            candidate = {**job, "spec": changed}

            assert _schema_accepts(candidate) == _decoder_accepts(candidate), path


def _changed(given: Any, value: Any, path: str = "") -> Iterator[tuple[Any, str]]:
    """Copies of a JSON value, each with one place in it replaced."""
    yield value, path
    if isinstance(given, dict):
        for key, inner in given.items():
            yield from ((given | {key: new}, at) for new, at in _changed(inner, value, f"{path}.{key}"))
    elif isinstance(given, list):
        for i, inner in enumerate(given):
            yield from (([*given[:i], new, *given[i + 1 :]], at) for new, at in _changed(inner, value, f"{path}.{i}"))


def _schema_accepts(job: Manifest) -> bool:
    return _validator(job["kind"]).is_valid(job)


@functools.cache
def _validator(kind: str) -> jsonschema_rs.Draft4Validator:
    return jsonschema_rs.Draft4Validator(schema_of(kind))


def _is(value: Any, type_: type[Any]) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


def _decoder_accepts(job: Manifest) -> bool:
    try:
        decoded: Any = msgspec.convert(job, BY_KIND[job["kind"]].job)
    except msgspec.ValidationError:
        return False
    if job["kind"] in ("DIJob", "NerveXJob"):
        spec = decoded.spec
        tasks = getattr(spec, "tasks", None) or ()  # NerveXJobs have none
        roles = (spec.coordinator, spec.collector, spec.learner, *tasks)
    elif job["kind"] == "MxJob":
        return all(_is(role.template, mlkube.JobTemplatePart) for role in decoded.spec.replica_specs)
    elif job["kind"] == "MXJob":
        roles = tuple(decoded.spec.mx_replica_specs.values())
    else:
        roles = tuple(decoded.spec.replica_specs.values())
    return not any(template.errors(role.template, "") for role in roles if role is not None)
