"""The table: every situation, its outcome, and the kinds whose users' contract says otherwise, with where it says so.

One fault ends the same in every kind. ``differs`` is for what a kind's documents promise. ``red`` is for what is not so
yet, ``silent`` for jobs that do the right thing and do not say so: these cells are expected to fail, and their marks
have to go when they do not. A number such as 0015 is that of a file in docs/decisions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.matrix import situations as do
from tests.matrix.kinds import (
    AITRAININGJOB,
    BY_JOB,
    BY_POD,
    COLLECTOR,
    COLLECTOR_OF_ALL,
    COORDINATOR,
    COORDINATOR_OF_ALL,
    DI,
    MLKUBE,
    MXJOB,
    MXJOB_MLKUBE,
    TASKS,
    Options,
    Row,
)
from tests.matrix.outcome import (
    ALL,
    NO_POD,
    SCOPE,
    VICTIM,
    Fails,
    GoesOn,
    Gone,
    Outcome,
    Remembers,
    Succeeds,
    Suspended,
    Waits,
)
from trainmaster.core.ids import JOB


@dataclass(frozen=True)
class Differs:
    """Another outcome, or None where the situation cannot be, and which document says so."""

    outcome: Outcome | None
    because: str


@dataclass(frozen=True)
class Situation:
    name: str
    act: do.Act
    outcome: Outcome
    differs: Mapping[str, Differs] = field(default_factory=dict)
    red: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    manifest: Callable[[Row], Options] = do.plain
    rows: Sequence[Row] = BY_POD
    at_creation: bool = False
    """The act comes before the job, instead of when all its pods run."""
    found: bool = False
    """The job runs already, under the operator before ours: ``PREDECESSORS`` has its objects."""

    def cell(self, row: Row) -> Outcome | None:
        differs = self.differs.get(row.contract)
        return differs.outcome if differs else self.outcome


PREDECESSORS = {
    AITRAININGJOB: "aitrainingjob-148db3b/ps-trainer/running",
    MXJOB: "kubeflow-1.7/train/running",
    MXJOB_MLKUBE: "mxjob-mlkube-c377703/dist/running",
    DI: "di-v0.2.2/parallel/running",
}
"""Files of tests/takeover/objects; none was recorded of the nervex-operator and of DI-orchestrator v1.1."""

POD_AND_NODE = "(?s)(?=.*{pod})(?=.*{node})"
EVICTED = "(?si)(?=.*{pod})(?=.*(evict|disrupt|drain))"

_NODE_FAULT = GoesOn(SCOPE, counted=1, event=POD_AND_NODE)

_COORDINATOR_ENDS = "0015: the end of the coordinator's program is the end of the job"
_PROGRAM_ENDS = "docs/mxjob.md, When it ends: exit codes 1-127 and OOMKilled are for good"
_PS_LITE = "docs/mxjob.md, What restarts: ps-lite takes no lost process back, so all pods restart"
_COORDINATORS = (COORDINATOR, COORDINATOR_OF_ALL)
_COLLECTORS = (COLLECTOR, COLLECTOR_OF_ALL)
_NO_POLICY = dict.fromkeys(
    (MXJOB_MLKUBE, *_COORDINATORS, *_COLLECTORS, TASKS), Differs(None, "it has no restart policy")
)
_OF_ALL = "docs/dijob.md, What restarts: DI-engine's coordinator takes no lost process back, so all pods restart"
_KEPT = "0015: a replica is there until it is given back"


_RESCHEDULED = {
    TASKS: Differs(replace(_NODE_FAULT, counted=0), "docs/dijob.md: what a node does to a pod is a reschedule")
}

NODES = (
    Situation("node-lost", do.lose_node, _NODE_FAULT, _RESCHEDULED),
    Situation(
        "node-lost-while-the-operator-was-away",
        do.lose_node_while_the_operator_is_away,
        replace(_NODE_FAULT, counted=None),
    ),
    Situation(
        "pod-terminating-on-a-dead-kubelet",
        do.delete_pod_and_lose_node,
        GoesOn(SCOPE, counted=None, event=POD_AND_NODE),
        {AITRAININGJOB: Differs(GoesOn(VICTIM, event=POD_AND_NODE), "0020: like every deleted pod, it is not counted")},
    ),
    Situation("node-deleted", do.delete_node, _NODE_FAULT, _RESCHEDULED),
    Situation(
        "drained",
        do.drain,
        GoesOn(SCOPE, counted=0, event=EVICTED),
    ),
    Situation(
        "drained-with-restart-policy-never",
        do.drain,
        Fails("{pod}"),
        _NO_POLICY,
        manifest=do.never_restarting,
    ),
    Situation(
        "preempted-by-kueue",
        do.preempt_by_kueue,
        GoesOn(ALL, counted=0, event="evicted from node .* by Kueue"),
    ),
    Situation(
        "preempted-by-kueue-with-restart-policy-never",
        do.preempt_by_kueue,
        GoesOn(ALL, counted=0, event="evicted from node .* by Kueue"),
        manifest=do.never_restarting,
    ),
    Situation(
        "most-nodes-away",
        do.lose_most_nodes,
        Waits("(?i)nodes"),
        rows=BY_JOB,
    ),
    *(
        Situation(name, act, _NODE_FAULT, _RESCHEDULED, manifest=do.with_gpu)
        for name, act in (
            ("gpu-unhealthy", do.report_unhealthy_gpu),
            ("all-gpus-unhealthy", do.report_all_gpus_unhealthy),
            ("gpu-lost-on-a-node-of-several-jobs", do.lose_gpu_beside_another_job),
            ("device-plugin-gone", do.lose_device_plugin),
        )
    ),
    *(
        Situation(name, act, GoesOn(NO_POD), manifest=do.with_gpu)
        for name, act in (
            ("device-plugin-upgraded", do.upgrade_device_plugin),
            ("device-plugin-upgraded-slowly", do.upgrade_device_plugin_slowly),
            ("kubelet-restarted", do.restart_kubelet),
            ("all-gpus-lost-and-no-kubelet-says-so", do.lose_all_gpus),
        )
    ),
    Situation("evicted", do.evict, _NODE_FAULT, _RESCHEDULED),
    Situation(
        "evicted-with-a-policy-for-node-faults",
        do.evict,
        _NODE_FAULT,
        _NO_POLICY,
        manifest=do.restarting_after_node_faults,
    ),
    *(
        Situation(f"ended-by-node-{reason}", do.ended_by_node(reason, message), _NODE_FAULT, _RESCHEDULED)
        for reason, message in (
            ("OutOfcpu", "Node didn't have enough resource: cpu, requested: 4000, used: 6000, capacity: 8000"),
            ("Shutdown", "Node is shutting, evicting pods"),
            ("NodeLost", "Node which was running pod is unresponsive"),
            ("Preempting", "Preempted in order to admit critical pod"),
            ("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present"),
        )
    ),
)

ENDS = (
    Situation(
        "oom-killed",
        do.container_ends(137, "OOMKilled"),
        GoesOn(SCOPE, counted=1, event="OOMKilled"),
        {
            **dict.fromkeys(_COORDINATORS, Differs(Fails("OOMKilled"), _COORDINATOR_ENDS)),
            MXJOB_MLKUBE: Differs(Fails("OOMKilled"), _PROGRAM_ENDS),
        },
    ),
    Situation(
        "exit-code-1",
        do.container_ends(1, "Error"),
        GoesOn(SCOPE, counted=1, event="(?s)(?=.*{pod}).*code ?1\\b"),
        {
            **dict.fromkeys(_COORDINATORS, Differs(Fails(r"code ?1\b"), _COORDINATOR_ENDS)),
            MXJOB_MLKUBE: Differs(Fails(r"code ?1\b"), _PROGRAM_ENDS),
        },
    ),
    *(
        Situation(
            f"signal-{code}",
            do.container_ends(code, "Error"),
            GoesOn(SCOPE, counted=1, event=f"(?s)(?=.*{{pod}}).*code ?{code}"),
            dict.fromkeys(_COORDINATORS, Differs(Fails(f"code ?{code}"), _COORDINATOR_ENDS)),
        )
        for code in (137, 143)
    ),
    Situation(
        "start-error",
        do.container_ends(128, "StartError"),
        Fails("StartError"),
        dict.fromkeys(
            _COLLECTORS,
            Differs(GoesOn(SCOPE, event="StartError"), "0015: a replica that failed is replaced, and never ends a job"),
        ),
    ),
    Situation(
        "crash-before-a-peer",
        do.crash_before_a_peer,
        Remembers(139, "SIGSEGV", "ValueError: loss is NaN"),
        dict.fromkeys(_COLLECTORS, Differs(None, "0015: a replica that failed is replaced, and never ends a job")),
        manifest=do.failing_for_good,
    ),
    Situation(
        "container-restarted-in-place",
        do.restart_in_place,
        GoesOn(NO_POD),
        {
            MXJOB_MLKUBE: Differs(GoesOn(SCOPE, counted=1), _PS_LITE),
            COLLECTOR: Differs(GoesOn(NO_POD, event="{pod}.*restarted in place"), "docs/dijob.md, What restarts"),
            COORDINATOR_OF_ALL: Differs(GoesOn(SCOPE, event="{pod}.*restarted in place"), _OF_ALL),
            COLLECTOR_OF_ALL: Differs(GoesOn(SCOPE, event="{pod}.*restarted in place"), _OF_ALL),
        },
    ),
    *(
        situation
        for name, manifest in (("side-car", do.with_sidecar), ("injected-side-car", do.with_injected_sidecar))
        for situation in (
            Situation(
                f"{name}-outlives-a-success", do.main_containers_succeed, Succeeds(), manifest=manifest, rows=BY_JOB
            ),
            Situation(
                f"{name}-outlives-a-failure",
                do.main_container_ends(143, "Error"),
                GoesOn(SCOPE, counted=1, event="(?s)(?=.*{pod}).*code ?143"),
                dict.fromkeys(_COORDINATORS, Differs(Fails("code ?143"), _COORDINATOR_ENDS)),
                manifest=manifest,
            ),
            Situation(f"{name}-fails", do.sidecar_ends, GoesOn(NO_POD), manifest=manifest),
        )
    ),
    Situation(
        "succeeded-pod-garbage-collected",
        do.succeed_and_collect,
        GoesOn(NO_POD, pods=-1, is_no_restart=True),
        {
            **dict.fromkeys(_COORDINATORS, Differs(Succeeds(), _COORDINATOR_ENDS)),
            **dict.fromkeys(_COLLECTORS, Differs(GoesOn(SCOPE), _KEPT)),
        },
    ),
)


OBSTACLES = (
    Situation(
        "image-cannot-be-pulled",
        do.waiting("ImagePullBackOff", 'Back-off pulling image "registry.example/train:1"'),
        Waits("ImagePullBackOff"),
        at_creation=True,
    ),
    Situation(
        # All that a pod shows of a ConfigMap that is missing; the kubelet's sentence is in an Event of the pod.
        "volume-cannot-be-mounted",
        do.waiting("ContainerCreating"),
        Waits("ContainerCreating"),
        at_creation=True,
    ),
    Situation(
        "unschedulable",
        do.unschedulable,
        Waits("0/8 nodes are available"),
        at_creation=True,
    ),
    Situation("create-refused-by-quota", do.refused(do.QUOTA), Waits("exceeded quota"), at_creation=True),
    Situation(
        "create-refused-by-pod-security", do.refused(do.POD_SECURITY), Waits("violates PodSecurity"), at_creation=True
    ),
    Situation("create-denied-by-a-webhook", do.refused(do.DENIED), Waits("no team label"), at_creation=True),
    Situation(
        "batch-job-refused-by-quota",
        do.refused(do.QUOTA, JOB),
        Waits("exceeded quota"),
        rows=MLKUBE,
        at_creation=True,
    ),
    Situation(
        "create-answered-by-500",
        do.refused(do.WEBHOOK),
        Waits("failed calling webhook"),
        at_creation=True,
    ),
    Situation(
        "foreign-object-has-the-name", do.occupy_name, Waits("(?i)name is taken|already exists"), at_creation=True
    ),
)


USERS = (
    Situation(
        "running-pod-deleted",
        do.delete_pod,
        GoesOn(VICTIM),
        {
            MXJOB: Differs(GoesOn(SCOPE, counted=1, event="{pod}"), _PS_LITE),
            MXJOB_MLKUBE: Differs(GoesOn(SCOPE, counted=1), _PS_LITE),
            COORDINATOR_OF_ALL: Differs(GoesOn(SCOPE, event="{pod}"), _OF_ALL),
            COLLECTOR_OF_ALL: Differs(GoesOn(SCOPE, event="{pod}"), _OF_ALL),
        },
    ),
    Situation("service-deleted", do.delete_service, GoesOn(NO_POD), rows=BY_JOB),
    Situation("suspended", do.suspend, Suspended(), rows=BY_JOB),
    Situation("suspended-and-resumed", do.suspend_and_resume, GoesOn(ALL, is_no_restart=True), rows=BY_JOB),
    Situation(
        "suspended-at-creation",
        do.nothing,
        Suspended(),
        {MXJOB: Differs(Suspended(("Suspended", "Created")), "Kubeflow's clients look for Created")},
        manifest=do.suspended,
        rows=BY_JOB,
        at_creation=True,
    ),
    Situation(
        "active-deadline-exceeded",
        do.nothing,
        Fails("(?i)deadline|timeLimit", stops=True),
        manifest=do.with_deadline,
        rows=BY_JOB,
    ),
    Situation(
        "ttl-after-finished",
        do.wait_for_its_end,
        Gone(),
        manifest=do.with_ttl,
        rows=BY_JOB,
    ),
    Situation(
        "scaled-up",
        do.scale(+1),
        GoesOn(NO_POD, pods=1, is_no_restart=True),
        {MXJOB_MLKUBE: Differs(None, "docs/mxjob.md: numbers stay when the job has begun; admission refuses it")},
        rows=BY_JOB,
    ),
    Situation(
        "scaled-down",
        do.scale(-1),
        GoesOn(NO_POD, pods=-1, is_no_restart=True),
        {MXJOB_MLKUBE: Differs(None, "docs/mxjob.md: numbers stay when the job has begun; admission refuses it")},
        rows=BY_JOB,
    ),
    Situation("spec-edited-to-invalid", do.make_spec_invalid, Waits("containers"), rows=BY_JOB),
    Situation("job-deleted-half-way", do.delete_job_half_way, Gone(), rows=BY_JOB),
    Situation("ended-by-another-operator", do.end_before_us, Succeeds(before_us=True), rows=BY_JOB, at_creation=True),
)

TAKEN_OVER = (
    Situation(
        "children-left-by-another-operator",
        do.nothing,
        GoesOn(NO_POD),
        rows=tuple(row for row in BY_JOB if row.contract in PREDECESSORS and row.name != "nervexjob"),
        found=True,
    ),
)

TABLE: Sequence[Situation] = (*NODES, *ENDS, *OBSTACLES, *USERS, *TAKEN_OVER)
