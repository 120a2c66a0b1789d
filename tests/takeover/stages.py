"""Every recorded stage, and what an operator that finds it has to conclude.

For all of them: a pod that runs keeps its uid unless a row says otherwise, nothing is created twice, and a job that has
ended stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

CREATED, RUNNING, SUSPENDED, SUCCEEDED, FAILED = "Created", "Running", "Suspended", "Succeeded", "Failed"


@dataclass(frozen=True)
class Stage:
    """``then`` is how the job is two minutes later, when all of its pods have started. Pods are named without the job:
    those of ``new`` are created, also in place of one that is there; those of ``gone`` go. ``waits``: nothing is
    created before the pods are gone that are terminating. ``counted`` are the restarts by role."""

    path: str
    then: str
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    may_replace: tuple[str, ...] = ()
    """Failed pods that the operator before left alone."""
    waits: bool = False
    services: int | None = None
    """How many are left; as many as before unless told."""
    counted: tuple[tuple[str, int], ...] = ()
    red: str = ""

    @property
    def has_ended(self) -> bool:
        """Before it was taken over."""
        return self.path.rpartition("/")[2] in ("succeeded", "failed")


DI = tuple(
    Stage(f"di-v0.2.2/{path}", then, **more)
    for path, then, more in (
        ("parallel/created", RUNNING, {}),
        ("parallel/coordinator-running", RUNNING, {}),
        ("parallel/replicas-created", RUNNING, {}),
        ("parallel/running", RUNNING, {}),
        ("parallel/collector-failed-before", RUNNING, {"may_replace": ("collector-djl2d",)}),
        ("parallel/collector-failed-after", RUNNING, {"may_replace": ("collector-djl2d",)}),
        ("parallel/collector-replaced-pending", RUNNING, {}),
        (
            "parallel/succeeded-before",
            SUCCEEDED,
            {"gone": ("collector-gzrp5", "collector-p96sk", "learner-wb795"), "services": 0},
        ),
        ("parallel/succeeded", SUCCEEDED, {}),
        (
            "coordinator-failed/failed-before",
            FAILED,
            {"gone": ("collector-g7gkg", "collector-hcz7n", "learner-9k4dg"), "services": 0},
        ),
        ("coordinator-failed/failed", FAILED, {}),
        ("created-phase-lost/created", RUNNING, {}),
        ("ddp/replicas-created", RUNNING, {}),
        ("ddp/running", RUNNING, {}),
        (
            "ddp/aggregator-failed-before",
            RUNNING,
            {"may_replace": ("aggregator-zndz8", "ddp-learner-d9cv9")},
        ),
        ("ddp/aggregator-replaced-pending", RUNNING, {}),
        ("ddp/succeeded", SUCCEEDED, {}),
        ("serial/created", RUNNING, {}),
        ("serial/running", RUNNING, {}),
        ("serial/succeeded", SUCCEEDED, {}),
    )
)

_PS = ("scheduler-0", "server-0", "worker-0", "worker-1")
"""Of an MXTrain job: ps-lite takes no lost process back, so a restart is one of all pods (docs/mxjob.md)."""

KUBEFLOW = tuple(
    Stage(f"kubeflow-1.7/{path}", then, **more)
    for path, then, more in (
        ("train/created", RUNNING, {}),
        ("train/scheduler-running", RUNNING, {}),
        ("train/running", RUNNING, {}),
        ("train/succeeded-before", SUCCEEDED, {}),
        ("train/succeeded", SUCCEEDED, {}),
        ("onfailure/running-restarted-in-place", RUNNING, {}),
        ("onfailure/succeeded", SUCCEEDED, {}),
        ("exitcode/worker-exit137-before", RUNNING, {"new": _PS}),
        ("exitcode/scheduler-exit137-before", RUNNING, {"new": _PS}),
        ("exitcode/worker-exit137-after", RUNNING, {}),
        ("exitcode/restarting", RUNNING, {}),
        ("exitcode/restarted-running", RUNNING, {}),
        ("exitcode/succeeded", SUCCEEDED, {}),
        ("exitcode-caught/worker-restarting", RUNNING, {"new": ("worker-1",)}),
        (
            "worker-failed/worker-failed-before",
            FAILED,
            {"gone": ("scheduler-0", "server-0", "worker-0"), "services": 1},
        ),
        ("worker-failed/failed", FAILED, {}),
        ("suspend/suspended-from-start", SUSPENDED, {}),
        ("suspend/suspended", SUSPENDED, {}),
        ("suspend/suspend-asked-before", SUSPENDED, {"gone": _PS, "services": 0}),
        ("suspend/suspended-pods-terminating", SUSPENDED, {"gone": _PS, "waits": True}),
        ("suspend/resumed-running", RUNNING, {}),
        ("gang-scheduler-plugins/created", RUNNING, {}),
        ("gang-scheduler-plugins/running", RUNNING, {}),
    )
)

_ALL = ("pserver-0", "trainer-0", "trainer-1")
_ONCE = (("pserver", 1), ("trainer", 1))

AITRAININGJOB = tuple(
    Stage(f"aitrainingjob-148db3b/{path}", then, **more)
    for path, then, more in (
        ("ps-trainer/created", RUNNING, {}),
        ("ps-trainer/creating", RUNNING, {}),
        ("ps-trainer/running", RUNNING, {}),
        ("ps-trainer/trainer-exit137-before", RUNNING, {"new": _ALL, "counted": _ONCE}),
        ("ps-trainer/restart-terminating", RUNNING, {"new": _ALL, "counted": _ONCE, "waits": True}),
        ("ps-trainer/restarting", RUNNING, {"counted": _ONCE}),
        ("ps-trainer/restarted-running", RUNNING, {"counted": _ONCE}),
        ("ps-trainer/succeeded-before", SUCCEEDED, {"gone": _ALL, "services": 0, "counted": _ONCE}),
        (
            "ps-trainer/succeeded-terminating",
            SUCCEEDED,
            {"gone": ("pserver-0",), "waits": True, "counted": _ONCE},
        ),
        ("ps-trainer/succeeded", SUCCEEDED, {"counted": _ONCE}),
        ("failed/failed-before", FAILED, {"gone": ("trainer-0", "trainer-1"), "services": 0}),
        ("failed/failed-terminating", FAILED, {"gone": ("trainer-0",), "waits": True}),
        ("failed/failed", FAILED, {}),
        ("clean-none/running", RUNNING, {}),
        ("clean-none/succeeded", SUCCEEDED, {}),
    )
)

MLKUBE = tuple(
    Stage(f"mxjob-mlkube-c377703/{path}", then, **more)
    for path, then, more in (
        (
            "dist/creating",
            RUNNING,
            {
                "new": tuple(
                    f"{role}-1kkf-{index}"
                    for role, number in (("scheduler", 1), ("server", 2), ("worker", 3))
                    for index in range(number)
                ),
                "services": 1,
            },
        ),
        ("dist/created", RUNNING, {}),
        ("dist/running", RUNNING, {}),
        ("dist/restarting", RUNNING, {}),
        ("dist/succeeded-before", SUCCEEDED, {"services": 0}),
        ("dist/succeeded", SUCCEEDED, {}),
        ("local/running", RUNNING, {}),
        ("local/succeeded", SUCCEEDED, {}),
        ("failed/failed", FAILED, {}),
    )
)

STAGES: Sequence[Stage] = (*DI, *KUBEFLOW, *AITRAININGJOB, *MLKUBE)
