"""Builders of manifests as a user writes them: a good job by default, with whatever a test wants to be different.

`tests/build.py` builds jobs as the API server gives them back.
"""

from typing import Any

from tests.build import kind_of

Manifest = dict[str, Any]

CONTAINER = "di-container"
TRAINER = "aitj-trainer"
MXNET = "mxnet"


def container(name: str = CONTAINER, **fields: Any) -> Manifest:
    return {"name": name, "image": "busybox"} | fields


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


def task(type_: str = "", *containers: Any, **fields: Any) -> Manifest:
    """An entry of spec.tasks."""
    return {**({"type": type_} if type_ else {}), "template": template(*containers), **fields}


def ditask(name: str = "job", *tasks: Any, metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """A DIJob of v2alpha1, with a learner and a collector unless told."""
    return {
        "apiVersion": "diengine.opendilab.org/v2alpha1",
        "kind": "DIJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"tasks": list(tasks) or [task("learner"), task("collector")], **spec},
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


def mx_replica(*containers: Any, **fields: Any) -> Manifest:
    """An entry of spec.mxReplicaSpecs."""
    return {"template": template(*(containers or (container(MXNET),))), **fields}


def mxjob(name: str = "job", *, metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """An MXJob of a scheduler, a server and a worker, unless the spec says otherwise."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MXJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {
            "jobMode": "MXTrain",
            "mxReplicaSpecs": {role: mx_replica() for role in ("Scheduler", "Server", "Worker")},
            **spec,
        },
    }


def crew(type_: str, replicas: int = 1, *containers: Any, restart: str = "Never", **fields: Any) -> Manifest:
    """An entry of an MxJob's replicaSpecs; ``restart`` is the policy of its pods, empty for none."""
    policy: Manifest = {"restartPolicy": restart} if restart else {}
    given = template(*(containers or (container("mxnet"),)), **policy)
    return {"mxReplicaType": type_, "replicas": replicas, "template": given, **fields}


def mlkubejob(name: str = "job", *, group: str = "mxnet.mlkube.io", **spec: Any) -> Manifest:
    """An MxJob of one worker, unless the spec says otherwise."""
    return {
        "apiVersion": f"{group}/v1beta1",
        "kind": "MxJob",
        "metadata": {"name": name},
        "spec": {"jobMode": "local", "replicaSpecs": [crew("WORKER")], **spec},
    }


def replicated(replicas: Manifest, name: str = "job") -> Manifest:
    """An AITrainingJob of these replicas."""
    return aitrainingjob(name, replicaSpecs=replicas)


def without(manifest: Manifest, *fields: str) -> Manifest:
    return {key: value for key, value in manifest.items() if key not in fields}


def resource_of(manifest: Manifest) -> str:
    """The resource as the admin client names it."""
    return f"{manifest['apiVersion']}/{kind_of(manifest).resource.plural}"
