"""Builders of manifests as a user writes them: a good job by default, with whatever a test wants to be different.

`tests/build.py` builds jobs as the API server gives them back.
"""

from typing import Any

from tests.build import kind_of

Manifest = dict[str, Any]

CONTAINER = "di-container"
TRAINER = "aitj-trainer"


def container(name: str = CONTAINER, **fields: Any) -> Manifest:
    return {"name": name, "image": "busybox", **fields}


def template(*containers: Any, metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """A pod template; without containers it has a good one."""
    body: Manifest = {"spec": {"containers": list(containers) or [container()], **spec}}
    return body if metadata is None else {"metadata": metadata, **body}


def replica(*containers: Any, metadata: Manifest | None = None, **fields: Any) -> Manifest:
    """An entry of spec.replicaSpecs."""
    return {"template": template(*(containers or (container(TRAINER),)), metadata=metadata), **fields}


def dijob(name: str = "job", *, metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """A DIJob with a coordinator, unless the spec says otherwise."""
    return {
        "apiVersion": "diengine.opendilab.org/v1alpha1",
        "kind": "DIJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"coordinator": {"template": template()}, **spec},
    }


def coordinated(given: Any, name: str = "job", **spec: Any) -> Manifest:
    """A DIJob whose coordinator has this template."""
    return dijob(name, coordinator={"template": given}, **spec)


def nervexjob(name: str = "job", *, metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """A NerveXJob with a coordinator, unless the spec says otherwise."""
    return {
        "apiVersion": "nervex.sensetime.com/v1alpha1",
        "kind": "NerveXJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"coordinator": {"template": template(container("coordinator"))}, **spec},
    }


def agconfig(namespace: str = "nervex-system", **fields: Any) -> Manifest:
    """The AggregatorConfig of NerveXJobs; ``fields`` are those of the aggregator's container."""
    return {
        "apiVersion": "nervex.sensetime.com/v1alpha1",
        "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config", "namespace": namespace},
        "spec": {"aggregator": {"template": template(container("aggregator", **fields))}},
    }


def aitrainingjob(name: str = "job", *, metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """An AITrainingJob with one trainer, unless the spec says otherwise."""
    return {
        "apiVersion": "elasticdeeplearning.ai/v1",
        "kind": "AITrainingJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"replicaSpecs": {"trainer": replica()}, **spec},
    }


def replicated(replicas: Manifest, name: str = "job") -> Manifest:
    """An AITrainingJob of these replicas."""
    return aitrainingjob(name, replicaSpecs=replicas)


def without(manifest: Manifest, *fields: str) -> Manifest:
    return {key: value for key, value in manifest.items() if key not in fields}


def resource_of(manifest: Manifest) -> str:
    """The resource as the admin client names it."""
    return f"{manifest['apiVersion']}/{kind_of(manifest).resource.plural}"
