"""Jobs of every kind for the state machine, and what must exist for them: an oracle that is not the planner."""

from typing import Any

from hypothesis import strategies as st

from tests.laws.memory import Object
from trainmaster.core.ids import Key
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.base import Kind
from trainmaster.kinds.dijob.kind import DIJobKind, NerveXJobKind

END = st.sampled_from(["Any", "All", "Rank0", "None"])


class Maker:
    """Specs of one kind, and the children that a job of such a spec must have."""

    kind: type[Kind[Any]]
    related: st.SearchStrategy[Object] | None = None
    """Specs of the object that jobs of this kind are planned with, if there is one."""
    annotations: tuple[str, ...] = ()
    """Those by which somebody outside tells a job something."""

    def is_stopped(self, job: Object) -> bool:
        """It was told to have no running pods for now."""
        return False

    def specs(self) -> st.SearchStrategy[Object]:
        raise NotImplementedError

    def children(self, key: Key, spec: Object) -> set[str]:
        raise NotImplementedError

    def policy(self, spec: Object) -> str:
        raise NotImplementedError

    def manifest(self, key: Key, spec: Object) -> Object:
        resource = self.kind.resource
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": key.name, "namespace": key.namespace},
            "spec": spec,
        }


def _templates(container: str, port: str) -> st.SearchStrategy[Object]:
    """On a network of its own, or on that of its machine, where its port is given to it."""
    main = {"name": container, "image": "x", "ports": [{"name": port, "containerPort": 80}]}
    return st.sampled_from([{"spec": {"containers": [main]}}, {"spec": {"hostNetwork": True, "containers": [main]}}])


class AITrainingJobMaker(Maker):
    kind = AITrainingJobKind
    annotations = ("Preempted", "Failed", "elasticdeeplearning.ai/nodefail")

    def specs(self) -> st.SearchStrategy[Object]:
        role = st.fixed_dictionaries(
            {
                "template": _templates("aitj-main", "aitj-80"),
                "replicas": st.integers(1, 3),
                "restartPolicy": st.sampled_from(["Always", "OnFailure", "ExitCode", "Never"]),
                "restartScope": st.sampled_from(["All", "Replica", "Pod"]),
            },
            optional={
                "completePolicy": END,
                "failPolicy": END,
                "restartLimit": st.integers(0, 4),
                "restartBackoffSeconds": st.sampled_from([0, 30]),
            },
        )
        return st.fixed_dictionaries(
            {"replicaSpecs": st.dictionaries(st.sampled_from(["ps", "worker"]), role, min_size=1)},
            optional={
                "completePolicy": END,
                "failPolicy": END,
                "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
                "restartingExitCode": st.sampled_from(["1", "137"]),
                "suspend": st.sampled_from([False, False, True]),
                "requeueOnPreemption": st.booleans(),
                "timeLimit": st.sampled_from([5, 700]),
                "pendingTimeLimit": st.just(700),
                "ttlSecondsAfterFinished": st.sampled_from([0, 30]),
            },
        )

    def is_stopped(self, job: Object) -> bool:
        is_preempted = "Preempted" in job["metadata"].get("annotations", {})
        spec = job["spec"]
        return bool(spec.get("suspend") or (spec.get("requeueOnPreemption") and is_preempted))

    def children(self, key: Key, spec: Object) -> set[str]:
        return {
            f"{key.name}-{role}-{index}"
            for role, given in spec["replicaSpecs"].items()
            for index in range(given["replicas"])
        }

    def policy(self, spec: Object) -> str:
        return str(spec.get("cleanPodPolicy", "All"))


class DIJobMaker(Maker):
    kind = DIJobKind

    def specs(self) -> st.SearchStrategy[Object]:
        return st.fixed_dictionaries(
            {"coordinator": st.fixed_dictionaries({"template": _templates("di-container", "di-port")})},
            optional={"cleanPodPolicy": st.sampled_from(["All", "ALL", "Running", "None", ""])},
        )

    def children(self, key: Key, spec: Object) -> set[str]:
        return {f"{key.name}-coordinator"}

    def policy(self, spec: Object) -> str:
        given: str = spec.get("cleanPodPolicy", "")
        return {"ALL": "All", "": "Running"}.get(given, given)


class NerveXJobMaker(DIJobMaker):
    kind = NerveXJobKind
    related = st.fixed_dictionaries(
        {"aggregator": st.fixed_dictionaries({"template": _templates("aggregator", "aggregator")})}
    )

    def specs(self) -> st.SearchStrategy[Object]:
        return st.fixed_dictionaries(
            {"coordinator": st.fixed_dictionaries({"template": _templates("coordinator", "coordinator")})},
            optional={"cleanPodPolicy": st.sampled_from(["All", "ALL", "Running", "None", ""])},
        )

    def children(self, key: Key, spec: Object) -> set[str]:
        return {f"{key.name}-coordinator", f"{key.name}-aggregator"}


MAKERS: tuple[Maker, ...] = (DIJobMaker(), AITrainingJobMaker(), NerveXJobMaker())
