"""The table: failures of programs and of what they need, and the words that name the cause.

Each row is a real job. ``says`` was written from the cause, not from the output: all of it must be in the first line
of ``trainmaster why``, and nothing of ``never``.
"""

import sys
from dataclasses import dataclass
from typing import Any

from tests.local.program import job, python, role, script
from tests.manifests.build import Manifest, container, crew, ditask, mlkubejob, mx_replica, mxjob, task
from tests.manifests.build import coordinated as dijob
from tests.manifests.build import template as pod

NOWHERE = "no-such-host.invalid"

# What follows stands in for a program that trains.

NAN = 'raise ValueError("loss is NaN at step 17")'

WORKERS = """
import os, socket, zlib
rank, hosts = int(os.environ["TRAININGJOB_REPLICA_INDEX"]), os.environ["WORKER_HOSTS"].split(",")
host, _, _ = hosts[3].rpartition(":")
port = 30000 + zlib.crc32(hosts[3].encode()) % 2700
if rank == 3:
    with socket.create_server(("", port)) as server:
        peers = [server.accept()[0] for _ in hosts[1:]]
    raise ValueError("loss is NaN at step 17")
while True:
    try:
        peer = socket.create_connection((host, port))
        break
    except OSError:
        pass
if not peer.recv(1):
    raise ConnectionError("Connection closed by peer worker-3")
"""
"""Rank 3 of 8 fails, and the others fail because their connections to it are closed. On a node all pods have one
address, so each job has a port of its own."""

TORCH = """
import sys
print("[rank0]: Traceback (most recent call last):", file=sys.stderr)
print('[rank0]:   File "train.py", line 9, in <module>', file=sys.stderr)
print("[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", file=sys.stderr)
print("[rank0]:[W1117 10:00:00.0 ProcessGroupNCCL.cpp:1476] Warning: WARNING: destroy_process_group() was not called "
      "before program exit, which can leak resources.", file=sys.stderr)
sys.exit(1)
"""
"""What PyTorch prints: a warning comes after the exception."""

PORT = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_server(server.getsockname())
"""
FULL = 'open("/dev/full", "w", buffering=1).write("checkpoint\\n")'
SIGNAL = "import os; os.kill(os.getpid(), {})"


@dataclass(frozen=True, eq=False)
class Failure:
    name: str
    job: Manifest
    says: tuple[str, ...]
    never: tuple[str, ...] = ()
    waits: bool = False
    """The job does not end: it waits for what is missing."""
    needs_events: bool = False
    """Nothing but Events has the cause. An API server keeps them for an hour."""


def program(name: str, command: list[str], *says: str, **fields: Any) -> Failure:
    """A program in an AITrainingJob; ``says`` is in the first line beside its replica. ``fields`` are those of its
    role."""
    return Failure(name, job(name, worker=role(command, **fields)), ("worker-0", *says))


def pods(
    name: str, body: Manifest, *says: str, waits: bool = False, needs_events: bool = False, **spec: Any
) -> Failure:
    """An AITrainingJob whose pods are changed by ``body``."""
    worker = role(script("sleep 600"))
    worker["template"]["spec"] |= body
    return Failure(name, job(name, spec=spec, worker=worker), says, waits=waits, needs_events=needs_events)


def main(**fields: Any) -> Manifest:
    return {"containers": [container("main", **{"command": script("sleep 600"), **fields})]}


def crew_of(*, worker: list[str]) -> list[Manifest]:
    waiting = container("mxnet", command=script("sleep 600"))
    return [
        crew("SCHEDULER", 1, waiting),
        crew("SERVER", 1, waiting),
        crew("WORKER", 1, container("mxnet", command=worker)),
    ]


def mx(**commands: list[str]) -> Manifest:
    return {role: mx_replica(container("mxnet", command=command)) for role, command in commands.items()}


EXITS = (
    program("crash", python(NAN), "code 1", "ValueError: loss is NaN at step 17"),
    program("exit-1", script("exit 1"), "code 1"),
    program("exit-2", script("exit 2"), "code 2"),
    program("exit-127", script("tarin.py --epochs 3"), "code 127", "tarin.py", "not found"),
    program("missing-file", [sys.executable, "no-such-file.py"], "code 2", "no-such-file.py", "No such file"),
    program("sigkill", python(SIGNAL.format(9)), "137", "SIGKILL"),
    program("sigsegv", python(SIGNAL.format(11)), "139", "SIGSEGV"),
    program("sigterm", python(SIGNAL.format(15)), "143", "SIGTERM"),
    program("sigabrt", python("import os; os.abort()"), "134", "SIGABRT"),
    program("port-in-use", python(PORT), "Address already in use"),
    program("dns", python(f"import socket; socket.getaddrinfo('{NOWHERE}', 1)"), "gaierror"),
    program("no-space", python(FULL), "No space left on device"),
    program("cuda-memory", python(TORCH), "CUDA out of memory"),
    program("restart-limit", python(NAN), "code 1", "loss is NaN", restartPolicy="OnFailure", restartLimit=1),
    Failure(
        "rank-3",
        job("rank-3", worker=role(python(WORKERS), 8, ports=(29500,))),
        ("worker-3", "loss is NaN"),
        never=("Connection",),
    ),
    Failure(
        "import-in-one-role",
        job("import-in-one-role", ps=role(script("sleep 600")), worker=role(python("import nemo"))),
        ("worker-0", "No module named 'nemo'"),
    ),
)
"""A program ends."""

LIMITS = (
    pods("deadline", main(), "timeLimit", timeLimit=1),
    pods(
        "sigterm-ignored",
        {**main(command=script("trap '' TERM; sleep 600 & wait")), "terminationGracePeriodSeconds": 1},
        "timeLimit",
        timeLimit=1,
    ),
    pods(
        "memory",
        main(
            command=python("print(len(bytearray(300 * 2**20)))"),
            resources={"limits": {"memory": "100Mi"}},
        ),
        "worker-0",
        "memory",
        "100Mi",
    ),
    pods(
        "liveness",
        {
            **main(livenessProbe={"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}),
            "terminationGracePeriodSeconds": 1,
        },
        "worker-0",
        "iveness probe",
        needs_events=True,
    ),
    pods(
        "never-created",
        main(envFrom=[{"secretRef": {"name": "nope"}}]),
        "creatingTimeLimit",
        'secret "nope" not found',
        creatingTimeLimit=2,
    ),
)
"""Something ends a program, or the job."""

STARTS = (
    pods("wrong-command", main(command=["tarin.py"]), "worker-0", "tarin.py", "not found"),
    pods("not-executable", main(command=["/etc/passwd"]), "worker-0", "/etc/passwd", "ermission denied"),
    pods("no-folder", main(workingDir="/no/such/folder"), "worker-0", "/no/such/folder"),
    pods(
        "init",
        {**main(), "initContainers": [container("fetch", command=script("echo no data; exit 4"))]},
        "worker-0",
        "fetch",
        "code 4",
        "no data",
    ),
    pods(
        "config-map",
        {**main(), "volumes": [{"name": "data", "configMap": {"name": "nope"}}]},
        'configmap "nope" not found',
        waits=True,
    ),
    pods("secret", main(envFrom=[{"secretRef": {"name": "nope"}}]), 'secret "nope" not found', waits=True),
    pods("gpu", main(resources={"limits": {"nvidia.com/gpu": 64}}), "nvidia.com/gpu", waits=True),
)
"""A program is not started."""

KINDS = (
    Failure("dijob", dijob(pod(container(command=python(NAN))), "dijob"), ("coordinator", "code 1", "loss is NaN")),
    Failure(
        "ditask",
        ditask(
            "ditask",
            task("learner", container(command=script("sleep 600"))),
            task("collector", container(command=python(NAN)), replicas=2),
            backoffLimit=0,
        ),
        ("collector-", "code 1", "loss is NaN"),
        never=("learner",),
    ),
    Failure(
        "mxjob",
        mxjob(
            "mxjob", mxReplicaSpecs=mx(Scheduler=script("sleep 600"), Server=script("sleep 600"), Worker=python(NAN))
        ),
        ("worker-0", "code 1", "loss is NaN"),
    ),
    Failure(
        "mlkube",
        mlkubejob("mlkube", jobMode="dist", replicaSpecs=crew_of(worker=python(NAN))),
        ("worker-0", "code 1", "loss is NaN"),
    ),
)
"""A program ends, in other kinds."""

TABLE = (*EXITS, *LIMITS, *STARTS, *KINDS)
