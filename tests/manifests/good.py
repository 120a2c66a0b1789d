"""Jobs that run as written, with every field of the specs in one of them."""

from typing import Any

from tests.manifests.build import (
    MXNET,
    TRAINER,
    Manifest,
    aitrainingjob,
    container,
    crew,
    dijob,
    ditask,
    mlkubejob,
    mx_replica,
    mxjob,
    nervexjob,
    replica,
    task,
    template,
)

_SHARED: list[Any] = [{"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]

SERIAL = dijob("serial")

PARALLEL = dijob(
    "parallel",
    group="atari",
    priorityClassName="system-node-critical",
    cleanPodPolicy="ALL",
    volumes=_SHARED,
    coordinator={
        "template": template(
            container(
                command=["/bin/sh", "-c", "ding -m parallel"],
                env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
                ports=[{"name": "di-port", "containerPort": 22270}],
                volumeMounts=[{"name": "cache", "mountPath": "/dev/shm"}],
            ),
            container("sidecar"),
            metadata={"labels": {"team": "rl"}, "annotations": {"note": "a"}, "creationTimestamp": None},
            initContainers=[container("init")],
            volumes=[{"name": "data", "emptyDir": {}}],
        )
    },
    collector={"template": template()},
    learner={"template": template(container(resources={"limits": {"nvidia.com/gpu": 1}}))},
    runPolicy={"restartScope": "All"},
)

TASKS = ditask(
    "tasks",
    task(
        "learner",
        container(ports=[{"name": "di-port", "containerPort": 22270}]),
        container("sidecar"),
        restartScope="All",
    ),
    task("collector", name="actors", replicas=3, minReplicas=2, maxReplicas=5),
    task("evaluator"),
    task("none", name="league-0", replicas=2),
    group="atari",
    priority="normal",
    preemptible=True,
    backoffLimit=-1,
    cleanPodPolicy="All",
    volumes=_SHARED,
    replicas=4,
    scaledTask="actors",
    runPolicy={
        "suspend": False,
        "activeDeadlineSeconds": 3600,
        "ttlSecondsAfterFinished": 0,
        "schedulingPolicy": {"minAvailable": 2},
    },
)

# <job>-none-9 has exactly 63 characters.
LONG_TASKS = ditask("a" * 56, {"name": "none", "template": template(), "replicas": 10})

# Its service is di-<job>: the name may start with a digit.
DIGIT_TASKS = ditask("1st")

# --- what DI-orchestrator v1.1.3 has under config/samples, as it is on the wire ---

_SHM: Manifest = {"name": "cache-volume", "emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"}}
_SAMPLE: Manifest = {"priority": "normal", "backoffLimit": 0, "cleanPodPolicy": "Running", "preemptible": False}
_DITASK = """ditask --labels {} \\
--package . \\
--main dizoo.atari.example.atari_dqn_dist.main \\
--parallel-workers 1 \\
--topology mesh \\
--platform k8s{}
"""


def _ding(tag: str, pull: str, args: str, **fields: Any) -> Manifest:
    given: Manifest = {"image": f"opendilab/ding:{tag}", "imagePullPolicy": pull}
    return container(**given, command=["/bin/bash", "-c"], args=[args], **fields)


def _atari(type_: str, replicas: int) -> Manifest:
    env = [{"name": "NCCL_DEBUG", "value": "INFO"}]
    trains = _ding("v0.3.1-dist-test", "IfNotPresent", _DITASK.format(type_, " "), env=env)
    return {"replicas": replicas, "name": type_, "type": type_, "template": template(trains, restartPolicy="Never")}


SERIAL_SAMPLE = ditask(
    "serial-test",
    {
        "replicas": 1,
        "type": "none",
        "name": "serial",
        "template": template(
            _ding(
                "nightly",
                "Always",
                "ding -m serial -c dizoo/classic_control/cartpole/config/cartpole_dqn_config.py -s 0\n",
                env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
                volumeMounts=[{"name": "cache-volume", "mountPath": "/dev/shm"}],
            ),
            volumes=[_SHM],
        ),
    },
    **_SAMPLE,
)
ATARI_SAMPLE = ditask(
    "job-with-tasks",
    *(_atari(type_, replicas) for type_, replicas in (("learner", 1), ("evaluator", 1), ("collector", 2))),
    **_SAMPLE,
)

# An empty policy means the default: the ancestor's webhook wrote it in, and manifests rely on that.
DEFAULTED = dijob("defaulted", cleanPodPolicy="")

MNIST = aitrainingjob(
    "paddle-mnist",
    cleanPodPolicy="None",
    completePolicy="All",
    failPolicy="Any",
    frameworkType="paddlepaddle",
    faultTolerant=True,
    priority="system-cluster-critical",
    schedulerName="default-scheduler",
    timeLimit=86_400,
    restartingExitCode="137,128",
    replicaSpecs={
        "trainer": {
            "minReplicas": 1,
            "replicas": 2,
            "maxReplicas": 4,
            "completePolicy": "All",
            "failPolicy": "Rank0",
            "restartLimit": 1,
            "restartPolicy": "OnNodeFailWithExitCode",
            "restartScope": "All",
            "edlPolicy": "Manual",
            "template": template(
                container(TRAINER, ports=[{"containerPort": 24446, "name": "aitj-24446"}]), hostNetwork=True
            ),
        },
        "PS": replica(completePolicy="None"),
    },
)

MINIMAL = aitrainingjob("minimal")

# <job>-<replica>-<index> has exactly 63 characters.
LONGEST = aitrainingjob("a" * 58, replicaSpecs={"t": replica(replicas=100)})

NERVEX = nervexjob("nervex", **{role: {"template": template(container(role))} for role in ("collector", "learner")})
# <job>-collector-<5> has exactly 63 characters.
LONG_NERVEX = nervexjob("a" * 47, collector={"template": template(container("collector"))})

# Every field of both generations: runPolicy, and beside it what the mxnet-operator had in the spec itself.
MX = mxjob(
    "gluon",
    successPolicy="AllWorkers",
    restartingExitCode="130,137-143",
    activeDeadlineSeconds=86_400,
    backoffLimit=3,
    runPolicy={
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": 600,
        "backoffLimit": 3,
        "suspend": False,
        "schedulingPolicy": {
            "minAvailable": 3,
            "queue": "research",
            "minResources": {"cpu": 4, "memory": "8Gi"},
            "priorityClass": "high",
            "scheduleTimeoutSeconds": 60,
        },
    },
    mxReplicaSpecs={
        "Scheduler": mx_replica(restartPolicy="Never"),
        "Server": mx_replica(replicas=2, restartPolicy="ExitCode", restartScope="All"),
        "worker": mx_replica(
            container(MXNET, ports=[{"containerPort": 9099, "name": "mxjob-port"}]),
            container("logs"),
            replicas=3,
            restartPolicy="OnFailure",
            restartScope="Pod",
        ),
    },
)
MX_ALONE = mxjob("alone", mxReplicaSpecs={"Worker": mx_replica(replicas=2)}, cleanPodPolicy="")
MX_TUNE = mxjob(
    "tune",
    jobMode="MXTune",
    mxReplicaSpecs={
        "TunerTracker": mx_replica(),
        "TunerServer": mx_replica(replicas=2, label="rasp3b", restartPolicy="Always"),
        "Tuner": mx_replica(),
    },
)
# <job>-<role>-<index> has exactly 63 characters.
LONG_MX = mxjob("a" * 51)

MLKUBE = mlkubejob(
    "mx-job-dist",
    jobMode="dist",
    RuntimeId="1kkf",
    backoffLimit=3,
    activeDeadlineSeconds=3600,
    ttlSecondsAfterFinished=0,
    cleanPodPolicy="All",
    restartingExitCode="1, 3-5, SIGKILL",
    managedBy="mxnet.mlkube.io/trainmaster",
    replicaSpecs=[
        crew("SCHEDULER", PsRootPort=9000),
        crew("SERVER", 2, container("mxnet", env=[{"name": "A", "value": "1"}]), container("side-car")),
        crew("WORKER", 3, container("mxnet", resources={"limits": {"nvidia.com/gpu": 1}}), restart="OnFailure"),
    ],
)
# The type is WORKER, there is one, and its pods are restarted by the Job alone.
MLKUBE_LOCAL = mlkubejob("1.mx-job-local", replicaSpecs=[{"template": template(container("mxnet"))}])
MLKUBE_FIRST = mlkubejob("mx-job-first", group="mlkube.io")
# <job>-scheduler-<4>-0 and <job>-worker-<4>-0 have exactly 63 characters.
LONG_MLKUBE = mlkubejob("a" * 46, jobMode="dist", replicaSpecs=[crew("SCHEDULER"), crew("SERVER"), crew("WORKER")])
LONG_MLKUBE_LOCAL = mlkubejob("b" * 49)

JOBS: tuple[Manifest, ...] = (
    SERIAL,
    PARALLEL,
    DEFAULTED,
    TASKS,
    LONG_TASKS,
    DIGIT_TASKS,
    SERIAL_SAMPLE,
    ATARI_SAMPLE,
    MNIST,
    MINIMAL,
    LONGEST,
    NERVEX,
    LONG_NERVEX,
    MX,
    MX_ALONE,
    MX_TUNE,
    LONG_MX,
    MLKUBE,
    MLKUBE_LOCAL,
    MLKUBE_FIRST,
    LONG_MLKUBE,
    LONG_MLKUBE_LOCAL,
)
