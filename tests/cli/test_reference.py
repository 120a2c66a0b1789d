"""A run of manifests names a ConfigMap or Secret that is missing before anything starts."""

from typing import Any

import pytest

from tests.manifests.build import Manifest, aitrainingjob, container, nervexjob, replica
from trainmaster.cli import reference
from trainmaster.client.manifest import Document, document_of, placed
from trainmaster.core.errors import BadConfig


def job(body: Manifest, **fields: Any) -> Manifest:
    """A job whose pods have this in their spec, and ``fields`` in their container."""
    worker = replica(container("main", **fields))
    worker["template"]["spec"] |= body
    return aitrainingjob(replicaSpecs={"worker": worker})


def documents(*bodies: Manifest) -> list[Document]:
    return placed([document_of(body, f"job.yaml, document {number}") for number, body in enumerate(bodies, 1)], "")


def stored(kind: str, name: str, namespace: str = "default") -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}


IN_VOLUME = job({"volumes": [{"name": "data", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "settings"}}]})
IN_PROJECTION = job({"volumes": [{"name": "all", "projected": {"sources": [{"secret": {"name": "key"}}]}}]})
IN_SECRET = job({"volumes": [{"name": "key", "secret": {"secretName": "key"}}]})
IN_ENV = job({}, env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}])
IN_ENV_FROM = job({}, envFrom=[{"secretRef": {"name": "key"}}])


@pytest.mark.parametrize(
    ("body", "kind", "name", "path"),
    [
        pytest.param(IN_VOLUME, "ConfigMap", "settings", "volumes[1].configMap", id="volume"),
        pytest.param(IN_PROJECTION, "Secret", "key", "volumes[0].projected.sources[0].secret", id="projected volume"),
        pytest.param(IN_SECRET, "Secret", "key", "volumes[0].secret", id="secret volume"),
        pytest.param(IN_ENV, "ConfigMap", "settings", "containers[0].env[0].valueFrom.configMapKeyRef", id="variable"),
        pytest.param(IN_ENV_FROM, "Secret", "key", "containers[0].envFrom[0].secretRef", id="variables"),
    ],
)
def test_an_object_that_is_missing_is_an_error_and_one_that_is_there_is_not(
    body: Manifest, kind: str, name: str, path: str
) -> None:
    reference.check(documents(stored(kind, name), body))
    with pytest.raises(BadConfig) as caught:
        reference.check(documents(stored(kind, name, "other"), body))

    assert str(caught.value) == (
        f"job.yaml, document 2: aitrainingjob/job: spec.replicaSpecs.worker.template.spec.{path} names {kind} {name}, "
        f"which is in no file; add a document of kind {kind}, or set optional: true"
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(job({}, envFrom=[{"secretRef": {"name": "key", "optional": True}}]), id="optional"),
        pytest.param(job({}, env=[{"name": "A", "value": "1"}]), id="a value"),
        pytest.param(nervexjob(), id="nothing"),
    ],
)
def test_a_pod_that_needs_nothing_is_not_refused(body: Manifest) -> None:
    reference.check(documents(body))
