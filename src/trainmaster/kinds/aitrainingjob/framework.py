"""What ``spec.frameworkType`` puts into the environment of training containers, so that their framework connects them.

Each framework is a row of FRAMEWORKS: a function for the variables of one replica, and one for a list of all replicas,
if the framework reads such a list. If a role that others connect to publishes no port, the framework sets nothing.
docs/frameworks.md describes the variables for users.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from trainmaster.core import template
from trainmaster.core.template import Env


class Place(NamedTuple):
    """The address of a replica, and its first published port, if it has one."""

    address: str
    port: int | None

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{self.port}"


class Cluster(msgspec.Struct, frozen=True):
    """All replicas of a job."""

    job: str
    roles: Mapping[str, Sequence[Place]]
    """Of every role with replicas, in lower case and in the order of ``ranked``. Ranks count in this order."""
    nodes: tuple[int, int]
    """The least and the largest number of replicas; they differ in elastic jobs."""

    @property
    def size(self) -> int:
        return sum(map(len, self.roles.values()))

    @property
    def root(self) -> Place:
        """The replica of rank 0."""
        return next(iter(self.roles.values()))[0]

    def rank(self, role: str, index: int) -> int:
        names = list(self.roles)
        return sum(len(self.roles[name]) for name in names[: names.index(role)]) + index

    def only(self, roles: Iterable[str]) -> "Cluster":
        return msgspec.structs.replace(self, roles={role: self.roles[role] for role in roles})


class Shared(NamedTuple):
    """A variable with the endpoints of all replicas. It is the same in all pods, and may be long."""

    name: str
    value: Callable[[Cluster], str]


class Framework(NamedTuple):
    own: Callable[[Cluster, str, int], Env]
    """The variables of one replica, given its role and index."""
    listening: Callable[[Sequence[str]], Sequence[str]]
    """Given the roles of a job in the order of ``ranked``: those that need a port, because others connect to them."""
    shared: Shared | None = None
    roles: tuple[str, ...] = ()
    """The names of roles that it knows. Empty: any."""


def ranked(roles: Iterable[str]) -> list[str]:
    """``master`` or ``chief`` first, then by name: API servers do not keep the order of the manifest."""
    return sorted(roles, key=lambda role: (role.lower() not in ("master", "chief"), role))


# --- PyTorch: init_process_group() reads the first group, torchrun reads PET_<option> ---


def _pytorch(cluster: Cluster, role: str, index: int) -> Env:
    root, rank = cluster.root, cluster.rank(role, index)
    least, most = cluster.nodes
    own = {
        "MASTER_ADDR": root.address,
        "MASTER_PORT": str(root.port),
        "RANK": str(rank),
        "WORLD_SIZE": str(cluster.size),
        "LOCAL_RANK": "0",
        "PET_NNODES": str(most) if least == most else f"{least}:{most}",
        "PET_NODE_RANK": str(rank),
        "PET_LOCAL_ADDR": cluster.roles[role][index].address,
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ID": cluster.job,
        "PET_RDZV_ENDPOINT": root.endpoint,
        # Otherwise torchrun compares addresses, and pods may share one. Rank 0 is never scaled down.
        "PET_RDZV_CONF": f"is_host={str(rank == 0).lower()}",
    }
    if least != most:
        # With a shared store, a replica that joins later may wait for ever (seen with torch 2.15).
        own["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    return template.env_of(own)


# --- TensorFlow: tf.distribute reads TF_CONFIG ---

_TASKS = ("chief", "worker", "ps", "evaluator")


def _members(roles: Iterable[str]) -> list[str]:
    """The evaluator is a task that is not part of the cluster."""
    return [role for role in roles if role != "evaluator"]


def _tf_cluster(cluster: Cluster) -> str:
    return _json({role: [place.endpoint for place in cluster.roles[role]] for role in _members(cluster.roles)})


def _tensorflow(cluster: Cluster, role: str, index: int) -> Env:
    task = _json({"type": role, "index": index})
    return template.env_of({"TF_CONFIG": f'{{"cluster":$(TF_CONFIG_CLUSTER),"task":{task}}}'})


# --- PaddlePaddle: paddle.distributed.init_parallel_env() ---


def _trainers(roles: Iterable[str]) -> list[str]:
    """Parameter servers have no rank."""
    return [role for role in roles if role not in ("ps", "pserver", "server")]


def _paddle_endpoints(cluster: Cluster) -> str:
    return ",".join(place.endpoint for role in _trainers(cluster.roles) for place in cluster.roles[role])


def _paddle(cluster: Cluster, role: str, index: int) -> Env:
    trainers = cluster.only(_trainers(cluster.roles))
    if role not in trainers.roles:
        return {}
    return template.env_of(
        {
            "PADDLE_TRAINER_ID": str(trainers.rank(role, index)),
            "PADDLE_TRAINERS_NUM": str(trainers.size),
            "PADDLE_CURRENT_ENDPOINT": trainers.roles[role][index].endpoint,
            "PADDLE_MASTER": trainers.root.endpoint,
        }
    )


# --- MXNet: ps-lite reads DMLC_* ---

_SCHEDULER, _SERVER, _WORKER = "scheduler", "server", "worker"


def _mxnet(cluster: Cluster, role: str, index: int) -> Env:
    roles = cluster.roles
    if role not in (_SCHEDULER, _SERVER, _WORKER):
        return {}
    root = roles[_SCHEDULER][0]
    own = {
        "DMLC_PS_ROOT_URI": root.address,
        "DMLC_PS_ROOT_PORT": str(root.port),
        "DMLC_NUM_SERVER": str(len(roles.get(_SERVER, ()))),
        "DMLC_NUM_WORKER": str(len(roles.get(_WORKER, ()))),
        "DMLC_ROLE": role,
        "DMLC_USE_KUBERNETES": "1",
    }
    if role == _WORKER:
        own["DMLC_WORKER_ID"] = str(index)
    # The address that ps-lite sends to its peers, by default the first that it finds on the machine.
    host = {"name": "DMLC_NODE_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return template.env_of(own) | {"DMLC_NODE_HOST": host}


# --- JAX: jax.distributed.initialize() reads the address, programs pass the numbers to it ---


def _jax(cluster: Cluster, role: str, index: int) -> Env:
    return template.env_of(
        {
            "JAX_COORDINATOR_ADDRESS": cluster.root.endpoint,
            "JAX_NUM_PROCESSES": str(cluster.size),
            "JAX_PROCESS_ID": str(cluster.rank(role, index)),
        }
    )


# --- the table ---


def _first(roles: Sequence[str]) -> Sequence[str]:
    return roles[:1]


FRAMEWORKS: Mapping[str, Framework] = {
    "pytorch": Framework(_pytorch, _first),
    "tensorflow": Framework(_tensorflow, _members, Shared("TF_CONFIG_CLUSTER", _tf_cluster), _TASKS),
    "paddle": Framework(_paddle, _trainers, Shared("PADDLE_TRAINER_ENDPOINTS", _paddle_endpoints)),
    "mxnet": Framework(_mxnet, lambda _: [_SCHEDULER], roles=(_SCHEDULER, _SERVER, _WORKER)),
    "jax": Framework(_jax, _first),
}
_DMLC = {
    "DMLC_PS_ROOT_URI": "The address of the scheduler.",
    "DMLC_PS_ROOT_PORT": "The port of the scheduler.",
    "DMLC_NUM_SERVER": "The number of servers.",
    "DMLC_NUM_WORKER": "The number of workers.",
    "DMLC_ROLE": "``scheduler``, ``server`` or ``worker``.",
    "DMLC_USE_KUBERNETES": "``1``: ps-lite does not bind to the name of the scheduler.",
    "DMLC_WORKER_ID": "Of workers: the index.",
    "DMLC_NODE_HOST": "The address of the pod, which ps-lite sends to the others.",
}
ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    "pytorch": {
        "MASTER_ADDR": "The address of rank 0.",
        "MASTER_PORT": "The port of rank 0.",
        "RANK": "The rank of the pod.",
        "WORLD_SIZE": "The number of replicas of all roles.",
        "LOCAL_RANK": "``0``: a pod has one process.",
        "PET_NNODES": "For torchrun: the number of replicas, or the least and the largest number of an elastic job.",
        "PET_NODE_RANK": "For torchrun: the rank of the pod.",
        "PET_LOCAL_ADDR": "For torchrun: the address of the pod.",
        "PET_RDZV_BACKEND": "For torchrun: ``c10d``.",
        "PET_RDZV_ID": "For torchrun: the name of the job.",
        "PET_RDZV_ENDPOINT": "For torchrun: address and port of rank 0.",
        "PET_RDZV_CONF": "For torchrun: whether this replica is rank 0, which the others connect to.",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "Of elastic jobs: ``1``, so that replicas can join later.",
    },
    "tensorflow": {
        "TF_CONFIG": "The cluster and the task of the pod, in JSON.",
        "TF_CONFIG_CLUSTER": "The part of TF_CONFIG that all pods share: the addresses of all replicas by role.",
    },
    "paddle": {
        "PADDLE_TRAINER_ID": "The rank of the pod; roles called ps, pserver or server have none.",
        "PADDLE_TRAINERS_NUM": "The number of replicas with a rank.",
        "PADDLE_TRAINER_ENDPOINTS": "Addresses and ports of all replicas with a rank, separated by commas.",
        "PADDLE_CURRENT_ENDPOINT": "Address and port of the pod.",
        "PADDLE_MASTER": "Address and port of rank 0.",
    },
    "mxnet": _DMLC,
    "jax": {
        "JAX_COORDINATOR_ADDRESS": "Address and port of rank 0.",
        "JAX_NUM_PROCESSES": "The number of replicas of all roles.",
        "JAX_PROCESS_ID": "The rank of the pod.",
    },
}
"""By framework, for users: the variables of its training containers."""
_ALIASES = {"torch": "pytorch", "paddlepaddle": "paddle"}


def framework_of(framework_type: str) -> Framework | None:
    """None for a word that is not known: manifests of the trainingjob-operator may have any."""
    word = framework_type.lower()
    return FRAMEWORKS.get(_ALIASES.get(word, word))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
