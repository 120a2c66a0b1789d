"""Declared replicas whose container its kubelet restarted in place. DI-engine's coordinator has lost them: it keeps the
connection to the process that ended, and does not connect to the new one."""

from collections.abc import Mapping

from trainmaster.core.plan import Event, warning
from trainmaster.core.view import ContainerView, PodView
from trainmaster.kinds.dijob import labels, reason
from trainmaster.kinds.dijob.declaration import Member
from trainmaster.lifecycle.decide import Report
from trainmaster.lifecycle.facts import joined
from trainmaster.lifecycle.fault import describe_restart, restarted_container

_ADVICE = (
    "DI-engine's coordinator does not connect to it again. "
    "To restart the coordinator and all replicas in such a case, set spec.runPolicy.restartScope to All"
)


def new_counts(members: Mapping[str, Member], report: Report) -> dict[str, int]:
    """The restarts of replicas of which another number is stored. A pod that was created anew has none."""
    found = {}
    for pod in _pods(members, report):
        container = _container(pod, report)
        count = container.restarts if container else 0
        if count != members[pod.key.name].restarts:
            found[pod.key.name] = count
    return found


def events(members: Mapping[str, Member], report: Report) -> tuple[Event, ...]:
    """One Event for all restarts since the last pass."""
    found = [
        f"pod {pod.key.name}: {describe_restart(pod, container)}"
        for pod in _pods(members, report)
        if (container := _container(pod, report)) and container.restarts > members[pod.key.name].restarts
    ]
    return (warning(reason.REPLICA_RESTARTED, f"{joined(found)}; {_ADVICE}"),) if found else ()


def _pods(members: Mapping[str, Member], report: Report) -> list[PodView]:
    return [pod for pod in report.facts.pods.values() if pod.key.name in members]


def _container(pod: PodView, report: Report) -> ContainerView | None:
    role = report.model.roles[pod.labels[labels.REPLICA_TYPE]]
    return restarted_container(pod, role.training)
