"""What the jobs of a manifest request, beside what this machine has. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from trainmaster.client.manifest import Document
from trainmaster.core.errors import BadConfig, Trainmaster
from trainmaster.core.quantity import amount_of
from trainmaster.local.gpu import GPU, VISIBLE, containers_in, gpus_of, requested

_NAMES = {"cpu": "CPUs", "memory": "bytes of memory"}


class PodDemand(msgspec.Struct, frozen=True):
    """The pods of one template."""

    path: tuple[str, ...]
    spec: Mapping[str, Any]
    replicas: int


def demands_of(document: Document) -> Iterator[PodDemand]:
    """Every place in a document with the spec of a pod: below ``template``, or the whole spec of a Pod."""
    yield from _below((), document.body, 1)


def _below(path: tuple[str, ...], value: Any, replicas: int) -> Iterator[PodDemand]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _below((*path[:-1], f"{path[-1] if path else ''}[{index}]"), item, replicas)
    elif isinstance(value, dict):
        if containers_in(value, "containers"):
            yield PodDemand(path, value, replicas)
            return
        count = value.get("replicas")
        replicas = count if isinstance(count, int) and "template" in value else replicas
        for name, item in value.items():
            yield from _below((*path, str(name)), item, replicas)


def check_gpus(documents: Sequence[Document], gpus: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raises ``BadConfig`` for a pod that requests more GPUs than this machine has."""
    for document in documents:
        for demand in demands_of(document):
            if (count := gpus_of(demand.spec)) > len(gpus):
                limit = f" ({VISIBLE}={environ[VISIBLE]})" if VISIBLE in environ else ""
                have = f"{len(gpus)} GPUs" if gpus else "none"
                raise BadConfig(
                    f"{document.where}: {document}: {'.'.join(demand.path)}: a pod requests {count} GPUs, and this "
                    f"machine has {have}{limit}; to run without, add: {_without(demand)}"
                )


def requests_gpus(documents: Sequence[Document]) -> bool:
    return any(gpus_of(demand.spec) for document in documents for demand in demands_of(document))


def warnings(documents: Sequence[Document], room: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each job that requests more than there is. Its processes share what there is."""
    for document in documents:
        for resource, unit in _NAMES.items():
            wanted = sum((_amount(demand, resource) for demand in demands_of(document)), Decimal(0))
            if wanted > amount_of(room[resource]):
                yield (
                    f"{document.where}: {document}: its pods request {_text(wanted)} {unit}, and this machine has "
                    f"{_text(amount_of(room[resource]))}; they share them"
                )


def _amount(demand: PodDemand, resource: str) -> Decimal:
    texts = [requested(container, resource) for container in containers_in(demand.spec, "containers")]
    return demand.replicas * sum((_quantity(text) for text in texts if text), Decimal(0))


def _quantity(text: str) -> Decimal:
    try:
        return amount_of(text)
    except (Trainmaster, ValueError):
        return Decimal(0)  # the API server refuses it


def _text(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


def _without(demand: PodDemand) -> str:
    """Options that set all GPU requests of a pod to 0."""
    found = []
    for field in ("containers", "initContainers"):
        for index, container in enumerate(containers_in(demand.spec, field)):
            for side in ("limits", "requests"):
                if requested({"resources": {side: (container.get("resources") or {}).get(side)}}):
                    name = GPU.replace(".", "\\.")
                    path = ".".join((*demand.path, f"{field}[{index}]", "resources", side, name))
                    found.append(f"--set '{path}=0'")
    return " ".join(found)
