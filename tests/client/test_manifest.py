import io
import sys
from pathlib import Path

import pytest

from trainmaster.client import manifest
from trainmaster.client.manifest import Document
from trainmaster.core.errors import BadConfig, Invalid

DIJOB = "apiVersion: diengine.opendilab.org/v1alpha1\nkind: DIJob\n"
AITJ = "apiVersion: elasticdeeplearning.ai/v1\nkind: AITrainingJob\n"
TEMPLATE = "{template: {spec: {containers: [{name: di-container, image: x, command: [sh]}]}}}"

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def one(text: str) -> Document:
    (document,) = manifest.parse(text, "job.yaml")
    return document


def error_of(text: str) -> str:
    with pytest.raises(BadConfig) as caught:
        list(manifest.parse(text, "job.yaml"))
    return str(caught.value)


# --- good ones ---


def test_documents_of_all_files_are_in_the_order_of_creation(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(f"---\n# nothing\n---\n{DIJOB}metadata: {{name: job}}\n")
    second.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n---\n"
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: ml}\n"
    )
    found = manifest.read([str(first), str(second)])

    assert [str(document) for document in found] == ["namespace/ml", "configmap/settings", "dijob/job"]
    assert [document.where for document in found] == [
        f"{second}, document 2",
        f"{second}, document 1",
        f"{first}, document 2",
    ]


def test_a_list_is_read_as_its_items() -> None:
    config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}"
    job = "{apiVersion: elasticdeeplearning.ai/v1, kind: AITrainingJob, metadata: {name: job}}"
    found = list(manifest.parse(f"apiVersion: v1\nkind: List\nitems: [{config}, {job}]\n", "all.yaml"))

    assert [(str(document), document.where) for document in found] == [
        ("configmap/settings", "all.yaml, document 1, item 1"),
        ("aitrainingjob/job", "all.yaml, document 1, item 2"),
    ]


def test_a_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = io.TextIOWrapper(io.BytesIO(f"{DIJOB}metadata: {{name: job}}\n".encode()))
    monkeypatch.setattr(sys, "stdin", typed)

    assert [document.where for document in manifest.read(["-"])] == ["stdin, document 1"]


@pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in EXAMPLES])
def test_every_example_is_a_good_manifest(file: Path) -> None:
    manifest.check_fields(manifest.read([str(file)]))


def test_values_are_as_they_will_travel() -> None:
    body = one(f"{DIJOB}metadata: {{name: job, annotations: {{1: one, day: 2026-11-15}}}}").body

    assert body["metadata"]["annotations"] == {"1": "one", "day": "2026-11-15"}


# --- bad ones ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: b: c", "job.yaml, line 1: is not YAML: mapping values are not allowed", id="syntax"),
        pytest.param("a: 1\nb:\n\tc: 2", "job.yaml, line 3: is not YAML: found character", id="tab"),
        pytest.param("a: {b: 1", "job.yaml, line 2: is not YAML: did not find expected", id="open brace"),
        pytest.param("a: \x01", "job.yaml: is not YAML: ", id="control character"),
        pytest.param("a: 1\nb: {c: 1,\n c: 2}", "job.yaml, line 3: duplicate key 'c'; remove one", id="twice"),
        pytest.param("just words", "job.yaml, document 1: is plain text, not an object; it must have", id="text"),
        pytest.param("---\n---\n[1, 2]", "job.yaml, document 2: is a list, not an object", id="list"),
        pytest.param("5", "job.yaml, document 1: is a single value, not an object", id="number"),
        pytest.param("kind: DIJob", "job.yaml, document 1: has no apiVersion; each document", id="no apiVersion"),
        pytest.param("apiVersion: v1", "job.yaml, document 1: has no kind", id="no kind"),
        pytest.param(DIJOB, "job.yaml, document 1: this DIJob has no metadata.name; give it one", id="no name"),
        pytest.param(
            f"{DIJOB}metadata: {{name: 5}}",
            'metadata.name is not text for YAML; write it in quotes: name: "5"',
            id="a number for a name",
        ),
        pytest.param(
            "apiVersion: elasticdeeplearning.ai/v1\nkind: AITrainingjob",
            "kind AITrainingjob (elasticdeeplearning.ai/v1) is not supported; did you mean AITrainingJob?",
            id="spelling of a kind",
        ),
        pytest.param(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}",
            "job.yaml, document 1: kind Deployment (apps/v1) is not supported; supported are Namespace, ConfigMap,"
            " Secret, Service, Pod, AggregatorConfig (diengine.opendilab.org/v1alpha1),"
            " AggregatorConfig (nervex.sensetime.com/v1alpha1), DIJob (diengine.opendilab.org/v1alpha1),"
            " DIJob (diengine.opendilab.org/v2alpha1),"
            " AITrainingJob (elasticdeeplearning.ai/v1), NerveXJob (nervex.sensetime.com/v1alpha1)",
            id="another kind",
        ),
        pytest.param(
            "apiVersion: elasticdeeplearning.ai/v2\nkind: AITrainingJob",
            "AITrainingJob is served as elasticdeeplearning.ai/v1, not as elasticdeeplearning.ai/v2",
            id="another version",
        ),
        pytest.param(
            "apiVersion: diengine.sensetime.com/v1alpha1\nkind: DIJob",
            "DIJob is served as diengine.opendilab.org/v1alpha1, not as diengine.sensetime.com/v1alpha1",
            id="a group before the first release",
        ),
        pytest.param("apiVersion: v1\nkind: List", "job.yaml, document 1: this List has no items", id="no items"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: [5]", "job.yaml, document 1, item 1: is a single value", id="bad item"
        ),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]",
            "job.yaml, document 1, item 1: kind List (v1) is not supported",
            id="a list in a list",
        ),
        pytest.param(
            f"{DIJOB}metadata: {{name: job}}\nspec: &a {{again: *a}}",
            "job.yaml: is nested too deeply, or refers to itself",
            id="in itself",
        ),
    ],
)
def test_an_error_names_its_place(text: str, said: str) -> None:
    error = error_of(text)

    assert said in error
    assert "\n" not in error


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"missing\.yaml: cannot be read: No such file or directory; check the path"):
        manifest.read([str(tmp_path / "missing.yaml")])


def test_a_folder_or_a_url_is_an_error_that_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=rf"{tmp_path}: cannot be read: it is a folder; name its files: {tmp_path}/\*"):
        manifest.read([str(tmp_path)])
    url = "https://jobs.example/job.yaml"
    with pytest.raises(BadConfig, match=rf"it is a URL; type: curl .* {url} \| trainmaster run -"):
        manifest.read([url])


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"ab\xff")
    with pytest.raises(BadConfig, match=r"model\.bin: is not UTF-8 text: byte 2 is wrong"):
        manifest.read([str(tmp_path / "model.bin")])


def test_files_without_a_job_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n")
    with pytest.raises(BadConfig, match=r"a\.yaml: contains no job; a job is one of DIJob \("):
        manifest.read([str(tmp_path / "a.yaml")])


def test_an_error_of_the_api_server_leaves_out_what_it_did_not_check() -> None:
    document = one(f"{AITJ}metadata: {{name: job}}")
    unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    error = Invalid(f'"job" is invalid: [spec: Required value, {unchecked}correct the existing errors] (422 Invalid)')

    assert manifest.refusal(document, error) == (
        'job.yaml, document 1: "job" is invalid: [spec: Required value] (422 Invalid)'
    )


# --- fields ---


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(f"{DIJOB}spec: {{coordinator: {TEMPLATE}}}", "", id="none"),
        pytest.param(
            f"{DIJOB}spec: {{coordinator: {TEMPLATE.replace('command', 'comand')}}}",
            r"spec\.coordinator\.template\.spec\.containers\[0\]\.comand",
            id="in a template",
        ),
        pytest.param(
            f"{DIJOB}spec: {{cordinator: {TEMPLATE}}}", r"spec.cordinator \(did you mean coordinator\?\)", id="spelling"
        ),
        pytest.param(f"{AITJ}spek: {{}}", r"spek \(did you mean spec\?\)", id="at the top"),
        pytest.param(
            f"{AITJ}spec: {{replicaSpecs: {{a: {{replica: 2}}, b: {{replicas: 1, x: 1}}}}}}",
            r"spec.replicaSpecs.a.replica \(did you mean replicas\?\), spec.replicaSpecs.b.x",
            id="in a map",
        ),
        pytest.param(f"{DIJOB}status: {{foo: 1}}", "", id="a status is nobody's business here"),
    ],
)
def test_a_field_that_would_be_dropped_silently_is_an_error(text: str, names: str) -> None:
    document = one(text + "\nmetadata: {name: job, anything: 1}")
    if not names:
        manifest.check_fields([document])
        return
    with pytest.raises(BadConfig, match=rf"job.yaml, document 1: \w+/job has no field {names}; remove"):
        manifest.check_fields([document])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {}", "", id="good"),
        pytest.param("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndate: {}", "no field date", id="spelling"),
        pytest.param("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {a: b}", "", id="secret"),
        pytest.param(
            f"{DIJOB}metadata: {{name: a}}\nspec: {{coordinator: {TEMPLATE.replace('[sh]', 'sh')}}}",
            "dijob/a, spec.coordinator.template.spec.containers[0].command must be a list; write [sh]",
            id="a word for a list",
        ),
        pytest.param(
            f"{DIJOB}metadata: {{name: a}}\nspec: {{coordinator: {TEMPLATE.replace('[sh]', '[sleep, 5]')}}}",
            'template.spec.containers[0].command[1] must be text; write it in quotes: "5"',
            id="a number for text",
        ),
        pytest.param(
            f"{DIJOB}metadata: {{name: a}}\nspec: {{coordinator: {TEMPLATE.replace('command', 'tty: so, args')}}}",
            'template.spec.containers[0].tty must be true or false; it is "so"',
            id="words for a boolean",
        ),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: [1]",
            "configmap/a, data must be an object; it is [1]",
            id="a list for an object",
        ),
    ],
)
def test_pods_and_what_they_need_are_read_before_anything_starts(text: str, said: str) -> None:
    if not said:
        manifest.check_fields([one(text)])
        return
    with pytest.raises(BadConfig) as caught:
        manifest.check_fields([one(text)])
    assert said in str(caught.value)


# --- namespaces ---


@pytest.mark.parametrize(
    ("own", "asked", "got"),
    [
        pytest.param("", "", "default", id="nobody says"),
        pytest.param("ml", "", "ml", id="its own"),
        pytest.param("", "ml", "ml", id="asked"),
        pytest.param("ml", "ml", "ml", id="both"),
    ],
)
def test_a_document_is_placed_in_its_namespace(own: str, asked: str, got: str) -> None:
    meta = "{name: job, namespace: ml}" if own else "{name: job}"
    (placed,) = manifest.placed([one(f"{DIJOB}metadata: {meta}")], asked)

    assert placed.key.namespace == got


def test_two_different_namespaces_are_an_error() -> None:
    with pytest.raises(BadConfig, match="dijob/job has namespace ml, but --namespace is rl"):
        manifest.placed([one(f"{DIJOB}metadata: {{name: job, namespace: ml}}")], "rl")


def test_two_objects_of_one_name_are_an_error_with_both_places() -> None:
    twice = list(manifest.parse(f"{DIJOB}metadata: {{name: job}}\n---\n{DIJOB}metadata: {{name: job}}", "job.yaml"))
    with pytest.raises(
        BadConfig, match=r"job\.yaml, document 2: dijob/job is also in job\.yaml, document 1; rename or remove"
    ):
        manifest.placed(twice, "")


def test_one_name_may_be_used_in_two_kinds_or_namespaces() -> None:
    texts = (
        f"{DIJOB}metadata: {{name: a}}",
        f"{DIJOB}metadata: {{name: a, namespace: ml}}",
        f"{AITJ}metadata: {{name: a}}",
    )
    assert len(manifest.placed([one(text) for text in texts], "")) == len(texts)


def test_a_namespace_has_none() -> None:
    (placed,) = manifest.placed([one("apiVersion: v1\nkind: Namespace\nmetadata: {name: ml}")], "rl")

    assert placed.body["metadata"] == {"name": "ml"}


def test_aliases_that_multiply_are_refused_at_once() -> None:
    """Some hundred bytes that would be 9 ** 30 values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 31)]
    with pytest.raises(BadConfig) as refused:
        list(manifest.parse("\n".join(lines), "bomb.yaml"))
    assert str(refused.value) == (
        "bomb.yaml: its aliases (*name) repeat more than 100,000 values; write these values out, or use fewer aliases"
    )


def test_aliases_that_save_some_lines_are_read() -> None:
    template = "{spec: {containers: [{name: aitj-main, image: x}]}}"
    text = f"""
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {{name: a}}
spec: {{replicaSpecs: {{ps: {{template: &t {template}}}, worker: {{template: *t}}}}}}
"""
    (document,) = manifest.parse(text, "job.yaml")
    roles = document.body["spec"]["replicaSpecs"]
    assert roles["worker"] == roles["ps"]
