"""deploy/kustomizeconfig.yaml: a job follows the names of the objects that kustomize renames."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import kustomize
from trainmaster.core.ids import Resource
from trainmaster.kinds.registry import DEFINITIONS

Object = dict[str, Any]

POD_SPEC: Object = {
    "serviceAccountName": "account",
    "imagePullSecrets": [{"name": "key"}],
    "containers": [
        {
            "name": "c",
            "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "key"}}],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}},
            ],
        }
    ],
    "volumes": [
        {"name": "a", "configMap": {"name": "settings"}},
        {"name": "b", "secret": {"secretName": "key"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "d", "projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "key"}}]}},
    ],
}
OBJECTS = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "account"}},
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}},
]
KUSTOMIZATION = {
    "namePrefix": "new-",
    "configMapGenerator": [{"name": "settings", "literals": ["a=b"]}],
    "secretGenerator": [{"name": "key", "literals": ["a=b"]}],
    "resources": ["objects.yaml"],
    "configurations": ["kustomizeconfig.yaml"],
}


def test_the_file_is_what_is_generated() -> None:
    assert kustomize.FILE.read_text() == kustomize.text(), "deploy/kustomizeconfig.yaml is stale: run make generate"


ROLE = {"template": {"spec": POD_SPEC}}
VOLUMES = POD_SPEC["volumes"]
SPECS: dict[str, Object] = {
    "dijobs.diengine.opendilab.org": {"coordinator": ROLE, "collector": ROLE, "learner": ROLE, "volumes": VOLUMES},
    "nervexjobs.nervex.sensetime.com": {"coordinator": ROLE, "collector": ROLE, "learner": ROLE, "volumes": VOLUMES},
    "aggregatorconfigs.diengine.opendilab.org": {"aggregator": ROLE},
    "aggregatorconfigs.nervex.sensetime.com": {"aggregator": ROLE},
    "aitrainingjobs.elasticdeeplearning.ai": {"replicaSpecs": {"trainer": ROLE, "pserver": ROLE}},
    "mxjobs.kubeflow.org": {"mxReplicaSpecs": {"Scheduler": ROLE, "Server": ROLE, "Worker": ROLE}},
    "mxjobs.mxnet.mlkube.io": {"replicaSpecs": [ROLE, ROLE]},
    "mxjobs.mlkube.io": {"replicaSpecs": [ROLE]},
}


@pytest.mark.parametrize("resource", [definition.resource for definition in DEFINITIONS], ids=str)
def test_a_job_follows_new_names(resource: Resource, binaries: Path, tmp_path: Path) -> None:
    spec = SPECS[str(resource)]
    job = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "job"}, "spec": spec}
    (tmp_path / "objects.yaml").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [job, *OBJECTS]}))
    (tmp_path / "kustomization.yaml").write_text(json.dumps(KUSTOMIZATION))
    (tmp_path / "kustomizeconfig.yaml").write_text(kustomize.FILE.read_text())

    made = subprocess.run([binaries / "kubectl", "kustomize", tmp_path], capture_output=True, text=True, timeout=60)

    assert made.returncode == 0, made.stderr
    objects = {each["kind"]: each for each in yaml.safe_load_all(made.stdout)}
    settings, key = (objects[kind]["metadata"]["name"] for kind in ("ConfigMap", "Secret"))
    new = {"settings": settings, "key": key, "data": "new-data", "account": "new-account"}
    assert len(settings) > len("new-settings-")
    assert objects[resource.kind]["spec"] == renamed(spec, new)


def renamed(value: Any, names: Mapping[str, str], field: str = "") -> Any:
    """The value with the new names; the key of a ConfigMap or Secret is called key, too."""
    match value:
        case str():
            return value if field == "key" else names.get(value, value)
        case list():
            return [renamed(each, names) for each in value]
        case dict():
            return {key: renamed(each, names, key) for key, each in value.items()}
    return value
