"""Variables that all pods of a job share, such as the addresses of all replicas.

The pods of a small job have the values themselves. In a large job every pod would have the addresses of all others, so
there the values are in one ConfigMap, and pods refer to it; the containers see the same.

The name of the ConfigMap has a digest of its values, and the values never change. So a pod gets those that it was
created with, whatever its kubelet has in its cache; after a change of scale there is another ConfigMap. A label of the
pods says which one they need. One that no pod needs any more is deleted.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from trainmaster.core import template
from trainmaster.core.ids import CONFIG_MAP
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Body, Create, Delete, deletions
from trainmaster.core.template import MANAGED_BY, Owner
from trainmaster.core.view import PodView

LABEL = "trainmaster/environment"
"""On pods: the digest of the values that they refer to."""
LABELS = {LABEL: "In large jobs: which ConfigMap has the long variables of the pod."}
MANY_REPLICAS = 64
LONG_ENVIRONMENT = 16 * 1024
"""A job with more replicas, or more bytes of shared values, is large."""
LONG_VALUE = 128
"""Bytes. A reference is about as long, so that shorter values stay in the pods of large jobs, too."""
_ENTRY = len('{"name":"","value":""},')
MAX_CONFIG_MAP = 1024 * 1024
"""Bytes of values: the API server stores no more in one ConfigMap."""
MAX_VARIABLE = 128 * 1024
"""Bytes: Linux starts no program with a longer variable."""


class Environment(msgspec.Struct, frozen=True):
    """The shared variables of a job."""

    entries: Mapping[str, Body] = {}
    """As the entries of a container's ``env``, by name."""
    data: Mapping[str, str] = {}
    """The values that entries refer to. Empty in a small job."""
    digest: str = ""
    """Of ``data``, empty without it."""

    @property
    def labels(self) -> dict[str, str]:
        """For the pods that have the entries."""
        return {LABEL: self.digest} if self.digest else {}


NONE = Environment()
"""Of a kind whose pods share no variables."""


def environment_of(job: str, values: Mapping[str, str], replicas: int) -> Environment:
    entries = template.env_of(values)
    if not is_large(sum(map(len, values.values())), replicas):
        return Environment(entries)
    data = {name: value for name, value in values.items() if len(value) > LONG_VALUE}
    if not data:
        return Environment(entries)
    digest = blake2b(msgspec.json.encode(data, order="deterministic"), digest_size=8).hexdigest()
    references = {name: _reference(name, config_map_name(job, digest)) for name in data}
    return Environment(entries | references, data, digest)


def is_large(size: int, replicas: int) -> bool:
    """``size`` is that of all shared values together."""
    return replicas > MANY_REPLICAS or size > LONG_ENVIRONMENT


def size_in_container(sizes: Mapping[str, int], replicas: int) -> int:
    """About how many bytes of a pod the variables of one container need, if the values are so long."""
    longest = LONG_VALUE if is_large(sum(sizes.values()), replicas) else MAX_CONFIG_MAP
    return sum(_ENTRY + len(name) + min(size, longest) for name, size in sizes.items())


def is_too_long(variable: str, size: int) -> bool:
    """True if no program starts with this variable. What follows its name and its value counts, too."""
    return len(f"{variable}=\0") + size > MAX_VARIABLE


def config_map_name(job: str, digest: str) -> str:
    return f"{job}-env-{digest}"


def creation(environment: Environment, owner: Owner) -> Create:
    body: Body = {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": config_map_name(owner.name, environment.digest),
            "namespace": owner.namespace,
            "labels": dict(MANAGED_BY),
            "ownerReferences": [owner.reference(blocks=True)],
        },
        "immutable": True,
        "data": dict(environment.data),
    }
    return Create(CONFIG_MAP, body, "the pods of a large job get the addresses of all replicas from it")


def surplus(job: str, needed: Iterable[str], observed: Observed, why: str) -> tuple[Delete, ...]:
    """The ConfigMaps whose digests are not needed."""
    kept = {config_map_name(job, digest) for digest in needed}
    maps = observed.children.get(CONFIG_MAP, {}).items()
    ours = config_map_name(job, "")
    return deletions(CONFIG_MAP, (view for name, view in maps if name.startswith(ours) and name not in kept), why)


def needed_by(pods: Iterable[PodView]) -> set[str]:
    """The digests of the values that pods refer to. A pod that has ended starts no container any more."""
    return {digest for pod in pods if (digest := pod.labels.get(LABEL)) and not pod.is_ended}


def missing(job: str, needed: Iterable[str], observed: Observed) -> set[str]:
    """The needed digests without a ConfigMap."""
    return {digest for digest in needed if not observed.child(CONFIG_MAP, config_map_name(job, digest))}


def _reference(name: str, config_map: str) -> Body:
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": name}}}
