"""A job of each kind that lasts until something happens to it. Builders and readers are those of the matrix."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.build import Json
from tests.matrix.kinds import AITJ, BY_JOB, DITASK, KUBEFLOW, MLKUBE, NEVER, Options, Row

IMAGE = "busybox"
LASTS = ("sleep", "3600")
TOO_MUCH = ("python3", "-c", "import time; time.sleep(1); kept = bytearray(200 << 20); time.sleep(600)")
"""Uses more memory than its limit, after a moment."""

_ROWS = {row.name: row for row in BY_JOB}


@dataclass(frozen=True)
class Kind:
    """`size` is the number of pods of its job here: nobody asks for collectors."""

    name: str
    row: Row
    plural: str
    size: int
    lease: str

    def manifest(
        self,
        namespace: str,
        *,
        node: str = "",
        command: tuple[str, ...] = LASTS,
        memory: str = "",
        finalizers: Sequence[str] = (),
    ) -> Json:
        """Its job. With a node, pods are there if they can be; with a limit of memory, they never restart."""
        job = copy.deepcopy(self.row.build(Options(policy=NEVER) if memory else Options()))
        job.pop("status", None)
        job["metadata"] = {"name": "job", "namespace": namespace} | (
            {"finalizers": [*finalizers]} if finalizers else {}
        )
        for pod in pod_specs(job["spec"]):
            pod["terminationGracePeriodSeconds"] = 1
            if memory:
                pod["restartPolicy"] = "Never"
            if node:
                pod["affinity"] = _near(node)
            for container in pod["containers"]:
                container |= {"image": IMAGE, "imagePullPolicy": "Never", "command": list(command)}
                if memory:
                    container["resources"] = {"limits": {"memory": memory}}
        return job

    def path(self, namespace: str) -> str:
        """Where its job is in the API."""
        version = self.row.build(Options())["apiVersion"]
        return f"/apis/{version}/namespaces/{namespace}/{self.plural}/job"


def pod_specs(body: Any) -> Iterator[Json]:
    """The specs of pods in an object."""
    if isinstance(body, dict):
        if "containers" in body:
            yield body
        else:
            for each in body.values():
                yield from pod_specs(each)
    elif isinstance(body, list):
        for each in body:
            yield from pod_specs(each)


def _near(node: str) -> Json:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    wish = [{"weight": 100, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}


KINDS = (
    Kind("AITrainingJob", AITJ, "aitrainingjobs", 3, "aitrainingjobs.elasticdeeplearning.ai"),
    Kind("MXJob", KUBEFLOW, "mxjobs", 4, "mxjobs.kubeflow.org"),
    Kind("MxJob", MLKUBE[0], "mxjobs", 4, "mxjobs.mxnet.mlkube.io"),
    Kind("DIJob", _ROWS["dijob"], "dijobs", 1, "dijobs.diengine.opendilab.org"),
    Kind("DIJob with tasks", DITASK, "dijobs", 3, "dijobs.diengine.opendilab.org"),
    Kind("NerveXJob", _ROWS["nervexjob"], "nervexjobs", 2, "nervexjobs.nervex.sensetime.com"),
)
