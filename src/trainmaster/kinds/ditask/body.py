"""Pods and the service of a job, and the environment that ``ditask`` of DI-engine reads."""

from collections.abc import Mapping
from functools import cached_property

from trainmaster.core import template
from trainmaster.core.plan import Body
from trainmaster.core.slot import Slot
from trainmaster.core.template import Owner
from trainmaster.kinds.base import Settings
from trainmaster.kinds.ditask import labels, rank
from trainmaster.kinds.ditask.types import DITaskJob, Task
from trainmaster.kinds.priority import class_of, set_class
from trainmaster.lifecycle import gang
from trainmaster.lifecycle.environment import Environment, environment_of
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.model import JobModel
from trainmaster.lifecycle.restart import NONE

NORMAL = "normal"
"""The priority that pods have without a class."""


ENVIRONMENT = {
    "DI_JOB_ID": "``<namespace>/<job>``.",
    "DI_SERVER_URL": "Where di-server is, with ``http://``.",
    "DI_RANK": "The rank of the pod.",
    rank.NODES: "The addresses of all replicas, by rank, separated by commas.",
    "DI_<TASK>_NODES": "The addresses of the pod's own task, by index, separated by commas.",
}
"""Of all containers. <TASK> is the task in upper case, with ``_`` for ``-``."""


class Builder:
    """Builds the children of one job; what they share is worked out once."""

    def __init__(
        self,
        job: DITaskJob,
        owner: Owner,
        tasks: Mapping[str, Task],
        model: JobModel,
        facts: Facts,
        settings: Settings,
    ) -> None:
        self._job, self._tasks, self._model, self._settings = job, tasks, model, settings
        self._owner = owner.reference(blocks=True)
        self._succeeded = {(task, index) for task, indices in facts.succeeded.items() for index in indices}

    @cached_property
    def environment(self) -> Environment:
        """The addresses of all replicas by rank, and those of each task. The name of a replica that has succeeded does
        not resolve any more."""
        job, domain, slots = self._job, self._settings.service_domain, self._model.slots
        present = [slot for slot in slots if (slot.role, slot.index) not in self._succeeded]
        values = {rank.NODES: rank.nodes(job, present, job.status.ranks, domain)}
        for task in self._tasks:
            own = [rank.address(job, slot.name, domain) for slot in slots if slot.role == task]
            values[_task_nodes(task)] = ",".join(own)
        return environment_of(job.metadata.name, values, len(slots))

    def pod(self, slot: Slot) -> Body:
        given = self._tasks[slot.role].template
        env = self._env(slot)
        pod: Body = {
            **given["spec"],
            "containers": [template.with_env(container, env) for container in given["spec"]["containers"]],
            "restartPolicy": "Never",  # a restart is the operator's decision, never the kubelet's
            "hostname": slot.name,
            "subdomain": labels.service_name(self._job.metadata.name),
        }
        if pod.get("initContainers"):
            pod["initContainers"] = [template.with_env(container, env) for container in pod["initContainers"]]
        if self._job.spec.volumes:
            pod["volumes"] = [*(pod.get("volumes") or ()), *self._job.spec.volumes]
        if self._job.spec.priority != NORMAL:
            set_class(pod, class_of(self._job.spec.priority, self._job.status.conditions))
        template.resolve_on_host(pod)
        body = template.pod_body(
            given,
            name=slot.name,
            namespace=self._job.metadata.namespace,
            labels=self._labels(slot),
            owner=self._owner,
            spec=pod,
        )
        body["metadata"]["annotations"] = {**(body["metadata"].get("annotations") or {}), **self._annotations(slot)}
        return gang.member(body, self._model.gang, slot.role) if self._model.gang else body

    def service(self, slot: Slot) -> Body:
        """The one service of the job: it gives every pod a name."""
        own = labels.job_labels(self._job.metadata.name)
        return template.headless_service_body(
            name=slot.name,
            namespace=self._job.metadata.namespace,
            labels=own,
            selector=own,
            owner=self._owner,
            ports=[(labels.PORT_NAME, labels.DEFAULT_PORT)],
        )

    def _rank(self, slot: Slot) -> str:
        return str(self._job.status.ranks[slot.place])

    def _env(self, slot: Slot) -> template.Env:
        meta, url, shared = self._job.metadata, self._settings.server_url, self.environment.entries
        own = {
            "DI_JOB_ID": f"{meta.namespace}/{meta.name}",
            "DI_SERVER_URL": url if "://" in url else f"http://{url}",
            "DI_RANK": self._rank(slot),
        }
        return {**template.env_of(own), **{name: shared[name] for name in (rank.NODES, _task_nodes(slot.role))}}

    def _labels(self, slot: Slot) -> dict[str, str]:
        priority = self._job.spec.priority
        return {
            **labels.job_labels(self._job.metadata.name),
            labels.POD: slot.name,
            labels.TASK_TYPE: self._tasks[slot.role].type,
            labels.TASK_NAME: slot.role,
            labels.RANK: self._rank(slot),
            labels.TASK_RANK: str(slot.index),
            labels.RESTART_COUNT: str(self._model.memory.restarts.get(slot.role, NONE).count),
            **({labels.PRIORITY: priority} if priority else {}),
            **self.environment.labels,
        }

    def _annotations(self, slot: Slot) -> dict[str, str]:
        return {
            labels.REPLICAS: str(len(self._model.slots)),
            labels.RANK: self._rank(slot),
            labels.TASK_RANK: str(slot.index),
            labels.NODE: "",
        }


def _task_nodes(task: str) -> str:
    return f"DI_{task.upper().replace('-', '_')}_NODES"
