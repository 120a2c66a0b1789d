"""The coordinator's pod and service, and the environment that DI-engine reads."""

from typing import Any

from trainmaster.api.dijob import RESOURCE, DIJob
from trainmaster.core import template
from trainmaster.core.plan import Body
from trainmaster.core.template import Owner
from trainmaster.kinds.dijob import labels


def coordinator_name(job: DIJob) -> str:
    return f"{job.metadata.name}-{labels.COORDINATOR}"


def coordinator_pod(job: DIJob, owner: Owner, server_url: str) -> Body:
    name, namespace, given = coordinator_name(job), job.metadata.namespace, job.spec.coordinator.template
    port = coordinator_port(job)
    env = {
        "COORDINATOR_PORT": str(port),
        "KUBERNETES_POD_NAMESPACE": namespace,
        "KUBERNETES_POD_NAME": name,
        "KUBERNETES_SERVER_URL": server_url,
        "KUBERNETES_COORDINATOR_URL": f"{name}.{namespace}:{port}",
    }
    spec: Body = {
        **given["spec"],
        "restartPolicy": given["spec"].get("restartPolicy") or "Never",
        "containers": [template.with_env(_with_port(c), env) for c in given["spec"]["containers"]],
    }
    if job.spec.volumes:
        spec["volumes"] = [*(spec.get("volumes") or ()), *job.spec.volumes]
    if job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    return template.pod_body(
        given,
        name=name,
        namespace=namespace,
        labels=_labels(job, labels.COORDINATOR, name),
        owner=owner.reference(blocks=False),
        spec=spec,
    )


def coordinator_service(job: DIJob, owner: Owner) -> Body:
    given = job.spec.coordinator.template.get("metadata") or {}
    name = coordinator_name(job)
    pod_labels = {**(given.get("labels") or {}), **_labels(job, labels.COORDINATOR, name)}
    return template.headless_service_body(
        name=name,
        namespace=job.metadata.namespace,
        labels=pod_labels,
        selector=pod_labels,
        owner=owner.reference(blocks=False),
        ports=[(labels.PORT, coordinator_port(job))],
    )


def coordinator_port(job: DIJob) -> int:
    """The port that the template names ``di-port``, else the role's default."""
    for container in template.read(job.spec.coordinator.template).spec.containers:
        for port in container.ports or ():
            if container.name == labels.CONTAINER and port.name == labels.PORT:
                return port.container_port
    return labels.COORDINATOR_PORT


def _with_port(container: dict[str, Any]) -> dict[str, Any]:
    ports = container.get("ports") or []
    if container["name"] != labels.CONTAINER or any(p.get("name") == labels.PORT for p in ports):
        return container
    return {**container, "ports": [*ports, {"name": labels.PORT, "containerPort": labels.COORDINATOR_PORT}]}


def _labels(job: DIJob, role: str, pod: str) -> dict[str, str]:
    return {
        labels.GROUP_NAME: RESOURCE.group,
        labels.JOB_NAME: job.metadata.name,
        labels.CONTROLLER_NAME: labels.CONTROLLER,
        labels.REPLICA_TYPE: role,
        labels.POD_NAME: pod,
    }
