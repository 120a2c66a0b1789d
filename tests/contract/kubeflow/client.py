"""The life of an MXJob as a user of Kubeflow's TrainingClient writes it.

    python client.py KUBECONFIG NAMESPACE

It runs under a Python that has the package kubeflow-training 1.8, and tells what it saw, a JSON object in each
line.
"""

import json
import sys
from typing import Any

from kubeflow.training import (  # type: ignore[import-not-found]
    KubeflowOrgV1MXJob,
    KubeflowOrgV1MXJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    TrainingClient,
)
from kubernetes.client import (  # type: ignore[import-not-found]
    V1Container,
    V1ObjectMeta,
    V1PodSpec,
    V1PodTemplateSpec,
)

NAME = "mxjob-mnist-ci-test"


def replica(replicas: int = 1) -> Any:
    container = V1Container(name="mxnet", image="docker.io/kubeflow/mxnet-gpu:latest", command=["/bin/true"])
    template = V1PodTemplateSpec(spec=V1PodSpec(containers=[container]))
    return KubeflowOrgV1ReplicaSpec(replicas=replicas, restart_policy="Never", template=template)


def mxjob(namespace: str) -> Any:
    roles = {"Scheduler": replica(), "Server": replica(), "Worker": replica(2)}
    return KubeflowOrgV1MXJob(
        api_version="kubeflow.org/v1",
        kind="MXJob",
        metadata=V1ObjectMeta(name=NAME, namespace=namespace),
        spec=KubeflowOrgV1MXJobSpec(
            job_mode="MXTrain", run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None"), mx_replica_specs=roles
        ),
    )


def tell(**seen: Any) -> None:
    print(json.dumps(seen), flush=True)


def main(kubeconfig: str, namespace: str) -> None:
    client = TrainingClient(config_file=kubeconfig, namespace=namespace, job_kind="MXJob")
    client.create_job(mxjob(namespace))
    tell(step="created", jobs=[job.metadata.name for job in client.list_jobs()])
    client.wait_for_job_conditions(NAME, expected_conditions={"Running"}, wait_timeout=120, polling_interval=1)
    tell(
        step="running",
        created=client.is_job_created(NAME),
        running=client.is_job_running(NAME),
        succeeded=client.is_job_succeeded(NAME),
        workers=sorted(client.get_job_pod_names(NAME, replica_type="worker")),
        second=client.get_job_pod_names(NAME, replica_type="worker", replica_index=1),
        master=client.get_job_pod_names(NAME, is_master=True),
    )
    job = client.wait_for_job_conditions(NAME, wait_timeout=120, polling_interval=1)
    tell(
        step="succeeded",
        running=client.is_job_running(NAME),
        succeeded=client.is_job_succeeded(NAME),
        failed=client.is_job_failed(NAME),
        conditions=[[c.type, c.status, c.reason] for c in client.get_job_conditions(NAME)],
        replicas={role: status.succeeded for role, status in job.status.replica_statuses.items()},
        started=str(job.status.start_time),
        completed=str(job.status.completion_time),
    )
    client.delete_job(NAME)
    tell(step="deleted", jobs=[job.metadata.name for job in client.list_jobs()])


if __name__ == "__main__":
    main(*sys.argv[1:])
