from typing import Any

import pytest

from trainmaster.cli import override
from trainmaster.client import manifest
from trainmaster.client.manifest import Document
from trainmaster.core.errors import BadConfig

JOB = """
apiVersion: elasticdeeplearning.ai/v1
kind: AITrainingJob
metadata: {name: mnist, labels: {}}
spec:
  replicaSpecs:
    trainer: {template: {spec: {containers: [{name: aitj-a, image: one}, {name: aitj-b, image: two}]}}}
    ps: {replicas: 2}
"""
OTHER = """
apiVersion: diengine.opendilab.org/v1alpha1
kind: DIJob
metadata: {name: serial}
spec: {cleanPodPolicy: Running}
"""
SETTINGS = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, spec: {}}"


def documents(*texts: str) -> list[Document]:
    return list(manifest.parse("\n---\n".join(texts), "job.yaml"))


def changed(text: str, *texts: str) -> list[dict[str, Any]]:
    return [document.body for document in override.apply([override.parse(text)], documents(*texts))]


def error_of(text: str, *texts: str) -> str:
    with pytest.raises(BadConfig) as caught:
        changed(text, *texts)
    return str(caught.value)


# --- what changes ---


def test_a_value_is_changed_in_the_job() -> None:
    (body,) = changed("spec.replicaSpecs.ps.replicas=4", JOB)

    assert body["spec"]["replicaSpecs"]["ps"] == {"replicas": 4}


def test_a_field_of_the_schema_may_be_added() -> None:
    (body,) = changed("spec.replicaSpecs.trainer.replicas=4", JOB)

    assert body["spec"]["replicaSpecs"]["trainer"]["replicas"] == 4


@pytest.mark.parametrize(
    ("value", "got"),
    [
        pytest.param("4", 4, id="number"),
        pytest.param("None", "None", id="word"),
        pytest.param("", None, id="nothing"),
        pytest.param("a=b", "a=b", id="with an equals sign"),
        pytest.param("[sh, -c, exit 1]", ["sh", "-c", "exit 1"], id="list"),
        pytest.param("'4'", "4", id="quoted"),
    ],
)
def test_the_value_is_yaml(value: str, got: Any) -> None:
    (body,) = changed(f"spec.cleanPodPolicy={value}", JOB)

    assert body["spec"]["cleanPodPolicy"] == got


def test_an_item_of_a_list_is_chosen_by_its_number() -> None:
    (body,) = changed("spec.replicaSpecs.trainer.template.spec.containers[1].image=three", JOB)

    assert [c["image"] for c in body["spec"]["replicaSpecs"]["trainer"]["template"]["spec"]["containers"]] == [
        "one",
        "three",
    ]


def test_a_name_may_hold_a_dot() -> None:
    (body,) = changed(r"metadata.labels.example\.org/team=ml", JOB)

    assert body["metadata"]["labels"] == {"example.org/team": "ml"}


def test_every_job_that_has_the_place_is_changed_and_no_other() -> None:
    first, other, settings = changed("spec.cleanPodPolicy=None", JOB, OTHER, SETTINGS)
    assert first["spec"]["cleanPodPolicy"] == other["spec"]["cleanPodPolicy"] == "None"
    assert settings["spec"] == {}

    first, other, _ = changed("spec.replicaSpecs.ps.replicas=4", JOB, OTHER, SETTINGS)
    assert first["spec"]["replicaSpecs"]["ps"]["replicas"] == 4
    assert other["spec"] == {"cleanPodPolicy": "Running"}


def test_the_original_documents_are_not_changed() -> None:
    given = documents(JOB)
    override.apply([override.parse("spec.replicaSpecs.ps.replicas=4")], given)

    assert given == documents(JOB)


# --- what cannot be ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "spec.replicaSpecs.trianer.replicas=4",
            "spec.replicaSpecs of aitrainingjob/mnist has no trianer; it has trainer, ps",
            id="parent",
        ),
        pytest.param("replicas=4", "aitrainingjob/mnist has no field replicas; it has apiVersion, kind", id="top"),
        pytest.param(
            "spec.replicaSpecs.ps.replica=4",
            "spec.replicaSpecs.ps of aitrainingjob/mnist has no field replica",
            id="leaf",
        ),
        pytest.param("spec.replicaSpecs[0].x=4", "spec.replicaSpecs of aitrainingjob/mnist is an object", id="no list"),
        pytest.param(
            "spec.replicaSpecs.trainer.template.spec.containers.image=x",
            "containers of aitrainingjob/mnist is a list of 2; choose an item, from [0] on",
            id="a list without a number",
        ),
        pytest.param(
            "spec.replicaSpecs.trainer.template.spec.containers[2]=x", "is a list of 2; choose an item", id="beyond"
        ),
        pytest.param("kind.x=y", "kind of aitrainingjob/mnist is a plain value and has no x", id="inside a word"),
    ],
)
def test_a_missing_path_is_refused_with_the_existing_names(text: str, said: str) -> None:
    assert error_of(text, JOB, OTHER).startswith(f"--set {text}: ")
    assert said in error_of(text, JOB, OTHER)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("spec.x", "has no path and value; write it like spec.replicaSpecs.trainer.replicas=4", id="no ="),
        pytest.param("=4", "has no path and value", id="no path"),
        pytest.param("a..b=4", "'a..b' is not a path", id="empty part"),
        pytest.param("a[x]=4", "'a[x]' is not a path", id="word for a number"),
        pytest.param("a={b", "the value is not YAML: ", id="value"),
    ],
)
def test_an_invalid_override_is_refused(text: str, said: str) -> None:
    assert error_of(text, JOB).startswith(f"--set {text}: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("metadata={}", "this AITrainingJob has no metadata.name; give it one", id="no name"),
        pytest.param("metadata.name=5", "metadata.name is not text for YAML", id="a number for a name"),
        pytest.param("kind=Pod", "Pod is served as v1, not as elasticdeeplearning.ai/v1", id="another kind"),
    ],
)
def test_an_override_that_breaks_the_job_is_refused(text: str, said: str) -> None:
    assert error_of(text, JOB).startswith(f"job.yaml, document 1: {said}")
