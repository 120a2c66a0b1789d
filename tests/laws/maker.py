"""Jobs of every kind for the state machine, and what must exist for them: an oracle that is not the planner."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.laws.memory import Object
from trainmaster.core.ids import Key
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.base import Kind, Settings
from trainmaster.kinds.dijob.kind import DIJobKind, NerveXJobKind
from trainmaster.kinds.ditask.kind import DITaskKind
from trainmaster.kinds.mlkube.kind import FirstMxJobKind, MxJobKind
from trainmaster.kinds.mxjob.kind import MXJobKind
from trainmaster.lifecycle.queue import QUEUE

END = st.sampled_from(["Any", "All", "Rank0", "None"])


class Maker:
    """Specs of one kind, and the children that a job of such a spec must have."""

    kind: type[Kind[Any]]
    related: st.SearchStrategy[Object] | None = None
    """Specs of the object that jobs of this kind are planned with, if there is one."""
    settings: Settings = Settings()
    annotations: tuple[str, ...] = ()
    """Those by which somebody outside tells a job something."""
    has_batch_jobs: bool = False
    """Its pods are those of batch Jobs."""
    keeps_services: bool = False
    """At the end the services of pods stay that are kept."""
    misses_pods: bool = False
    """A pod that somebody takes away is a failure, too."""

    has_ranks: bool = False
    """Its pods find each other by rank."""

    def is_stopped(self, job: Object) -> bool:
        """It was told to have no running pods for now."""
        return False

    def specs(self) -> st.SearchStrategy[Object]:
        raise NotImplementedError

    def children(self, key: Key, spec: Object) -> set[str]:
        raise NotImplementedError

    def services(self, key: Key, spec: Object) -> set[str]:
        """The services among them; mostly each replica has one of its name."""
        return self.children(key, spec)

    def names(self, key: Key, job: Object) -> set[str]:
        """The children that a stored job must have; most kinds name them by the spec alone."""
        return self.children(key, job["spec"]) | self.services(key, job["spec"])

    def policy(self, spec: Object) -> str:
        raise NotImplementedError

    def manifest(self, key: Key, spec: Object) -> Object:
        """Every second job has a queue of Kueue."""
        resource = self.kind.resource
        labels = {QUEUE: "night"} if len(msgspec.json.encode(spec)) % 2 else {}
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "labels": labels},
            "spec": spec,
        }


def _templates(container: str, port: str) -> st.SearchStrategy[Object]:
    """On a network of its own, or on that of its machine, where its port is given to it."""
    main = {"name": container, "image": "x", "ports": [{"name": port, "containerPort": 80}]}
    return st.sampled_from([{"spec": {"containers": [main]}}, {"spec": {"hostNetwork": True, "containers": [main]}}])


class AITrainingJobMaker(Maker):
    kind = AITrainingJobKind
    settings = Settings(creating_duration_period=20.0, creating_restart_period=60.0)
    annotations = ("Preempted", "Failed", "elasticdeeplearning.ai/nodefail")

    def specs(self) -> st.SearchStrategy[Object]:
        role = st.fixed_dictionaries(
            {
                "template": _templates("aitj-main", "aitj-80"),
                "replicas": st.integers(1, 3),
                "restartPolicy": st.sampled_from(["Always", "OnFailure", "ExitCode", "OnNodeFail", "Never"]),
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
                "cleanPodPolicy": st.sampled_from(["All", "Running", "None", "CleanPodPolicyNone"]),
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
        return str(spec.get("cleanPodPolicy", "All")).removeprefix("CleanPodPolicy")


class GangMaker(AITrainingJobMaker):
    """The same jobs, whose pods are placed together."""

    settings = msgspec.structs.replace(AITrainingJobMaker.settings, gang_scheduler="volcano")


RESTARTS = st.fixed_dictionaries({"restartScope": st.sampled_from(["All", "Pod"])})


class DIJobMaker(Maker):
    kind = DIJobKind
    misses_pods = True

    def specs(self) -> st.SearchStrategy[Object]:
        return st.fixed_dictionaries(
            {"coordinator": st.fixed_dictionaries({"template": _templates("di-container", "di-port")})},
            optional={"cleanPodPolicy": st.sampled_from(["All", "ALL", "Running", "None", ""]), "runPolicy": RESTARTS},
        )

    def children(self, key: Key, spec: Object) -> set[str]:
        return {f"{key.name}-coordinator"}

    def policy(self, spec: Object) -> str:
        given: str = spec.get("cleanPodPolicy", "")
        return {"ALL": "All", "": "Running"}.get(given, given)


class DITaskMaker(Maker):
    kind = DITaskKind
    has_ranks = True

    def specs(self) -> st.SearchStrategy[Object]:
        # The port of DI-engine's program cannot be changed: no template is on the network of its machine.
        main = {"name": "di-container", "image": "x", "ports": [{"name": "di-port", "containerPort": 80}]}
        fields = {
            "template": st.just({"spec": {"containers": [main]}}),
            "replicas": st.integers(1, 3),
            "restartScope": st.sampled_from(["Pod", "Pod", "All"]),
        }
        kinds = st.lists(st.sampled_from(["learner", "collector", "evaluator"]), min_size=1, unique=True)
        tasks = kinds.flatmap(lambda types: st.tuples(*(self._task(type_, fields) for type_ in types)).map(list))
        run_policy = st.fixed_dictionaries(
            {},
            optional={
                "activeDeadlineSeconds": st.sampled_from([5, 700]),
                "ttlSecondsAfterFinished": st.sampled_from([0, 30]),
                "suspend": st.sampled_from([False, False, True]),
            },
        )
        return st.fixed_dictionaries(
            {"tasks": tasks, "runPolicy": run_policy},
            optional={
                "cleanPodPolicy": st.sampled_from(["All", "ALL", "Running", "None", ""]),
                "backoffLimit": st.integers(-1, 3),
                "preemptible": st.booleans(),
            },
        )

    def _task(self, type_: str, fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Object]:
        return st.fixed_dictionaries({"type": st.just(type_), **fields})

    def is_stopped(self, job: Object) -> bool:
        return bool(job["spec"]["runPolicy"].get("suspend"))

    def children(self, key: Key, spec: Object) -> set[str]:
        return {f"{key.name}-{task['type']}-{index}" for task in spec["tasks"] for index in range(task["replicas"])}

    def services(self, key: Key, spec: Object) -> set[str]:
        return {f"di-{key.name}"}

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
            optional={"cleanPodPolicy": st.sampled_from(["All", "ALL", "Running", "None", ""]), "runPolicy": RESTARTS},
        )

    def children(self, key: Key, spec: Object) -> set[str]:
        return {f"{key.name}-coordinator", f"{key.name}-aggregator"}


class MXJobMaker(Maker):
    kind = MXJobKind
    keeps_services = True
    misses_pods = True

    def specs(self) -> st.SearchStrategy[Object]:
        run_policy = st.fixed_dictionaries(
            {},
            optional={
                "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
                "backoffLimit": st.integers(0, 3),
                "activeDeadlineSeconds": st.sampled_from([5, 700]),
                "ttlSecondsAfterFinished": st.sampled_from([0, 30]),
                "suspend": st.sampled_from([False, False, True]),
            },
        )
        return st.one_of(
            self._modes("MXTrain", {"Scheduler": 1, "Server": 2, "worker": 2}, run_policy),
            self._modes("MXTrain", {"Worker": 2}, run_policy),
            self._modes("MXTune", {"TunerTracker": 1, "TunerServer": 1, "Tuner": 1}, run_policy),
        )

    def _modes(
        self, mode: str, most: dict[str, int], run_policy: st.SearchStrategy[Object]
    ) -> st.SearchStrategy[Object]:
        return st.fixed_dictionaries(
            {
                "jobMode": st.just(mode),
                "mxReplicaSpecs": st.fixed_dictionaries({role: self._role(role, most[role]) for role in most}),
                "runPolicy": run_policy,
            },
            optional={
                "successPolicy": st.sampled_from(["", "AllWorkers"]),
                "restartingExitCode": st.sampled_from(["1", "137"]),
            },
        )

    def _role(self, role: str, most: int) -> st.SearchStrategy[Object]:
        scopes = ["All"] if role in ("Scheduler", "Server") else ["All", "Pod"]
        return st.fixed_dictionaries(
            {
                "template": _templates("mxnet", "mxjob-port"),
                "replicas": st.integers(1, most),
                "restartPolicy": st.sampled_from(["Always", "OnFailure", "ExitCode", "Never"]),
            },
            optional={"restartScope": st.sampled_from(scopes)},
        )

    def is_stopped(self, job: Object) -> bool:
        return bool(job["spec"]["runPolicy"].get("suspend"))

    def children(self, key: Key, spec: Object) -> set[str]:
        return {
            f"{key.name}-{role.lower()}-{index}"
            for role, given in spec["mxReplicaSpecs"].items()
            for index in range(given["replicas"])
        }

    def policy(self, spec: Object) -> str:
        return str(spec["runPolicy"].get("cleanPodPolicy", "None"))


class MxJobMaker(Maker):
    kind = MxJobKind
    has_batch_jobs = True

    def specs(self) -> st.SearchStrategy[Object]:
        return st.one_of(
            self._of("dist", self._role("SCHEDULER", 1), self._role("SERVER", 2), self._role("WORKER", 2)),
            self._of("local", self._role("WORKER", 1)),
        )

    def _of(self, mode: str, *roles: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
        return st.fixed_dictionaries(
            {"jobMode": st.just(mode), "replicaSpecs": st.tuples(*roles).map(list)},
            optional={
                "backoffLimit": st.integers(0, 2),
                "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
                "activeDeadlineSeconds": st.sampled_from([5, 700]),
                "ttlSecondsAfterFinished": st.sampled_from([0, 30]),
                "restartingExitCode": st.just("1"),
                "suspend": st.sampled_from([False, False, True]),
            },
        )

    def _role(self, type_: str, most: int) -> st.SearchStrategy[Object]:
        return st.fixed_dictionaries(
            {
                "mxReplicaType": st.just(type_),
                "template": _templates("mxnet", "ps"),
                "replicas": st.integers(1, most),
            },
            optional={"restartScope": st.sampled_from(["All", "Pod"])},
        )

    def is_stopped(self, job: Object) -> bool:
        return bool(job["spec"].get("suspend"))

    def names(self, key: Key, job: Object) -> set[str]:
        """By the runtime id of the present attempt."""
        id_ = job.get("status", {}).get("runtimeId", "")
        return {
            f"{key.name}-{role['mxReplicaType'].lower()}-{id_}-{index}"
            for role in job["spec"]["replicaSpecs"]
            for index in range(role["replicas"])
        }

    def policy(self, spec: Object) -> str:
        return str(spec.get("cleanPodPolicy", "Running"))


class FirstMxJobMaker(MxJobMaker):
    kind = FirstMxJobKind


MAKERS: tuple[Maker, ...] = (
    DIJobMaker(),
    DITaskMaker(),
    AITrainingJobMaker(),
    NerveXJobMaker(),
    MXJobMaker(),
    MxJobMaker(),
    FirstMxJobMaker(),
)
