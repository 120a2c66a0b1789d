"""Jobs that run as written, with every field of the specs in one of them."""

from typing import Any

from tests.manifests.build import TRAINER, Manifest, aitrainingjob, container, dijob, nervexjob, replica, template

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
    priority="high",
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

JOBS: tuple[Manifest, ...] = (SERIAL, PARALLEL, DEFAULTED, MNIST, MINIMAL, LONGEST, NERVEX, LONG_NERVEX)
