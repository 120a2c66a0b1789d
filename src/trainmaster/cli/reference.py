"""ConfigMaps and Secrets that the pods of a manifest need. No I/O.

In a run of manifests they cannot be created later: without the check, pods would wait until the run is stopped.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from trainmaster.cli.demand import demands_of
from trainmaster.client.manifest import CONFIG_MAP, SECRET, Document
from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.local.gpu import containers_in


class Reference(msgspec.Struct, frozen=True):
    """``path`` is that of the field within the spec of a pod."""

    path: str
    resource: Resource
    name: str


def check(documents: Sequence[Document]) -> None:
    """Raises ``BadConfig`` for a pod that needs an object which no file contains."""
    known = {(document.resource, document.key) for document in documents}
    for document in documents:
        has_pods = document.is_job or document.resource == POD
        for demand in demands_of(document) if has_pods else ():
            for needed in references_of(demand.spec):
                if (needed.resource, Key(document.key.namespace, needed.name)) not in known:
                    kind = needed.resource.kind
                    raise BadConfig(
                        f"{document.where}: {document}: {'.'.join((*demand.path, needed.path))} names {kind} "
                        f"{needed.name}, which is in no file; add a document of kind {kind}, or set optional: true"
                    )


def references_of(spec: Mapping[str, Any]) -> Iterator[Reference]:
    """All that a pod cannot start without."""
    for path, volume in _items(spec, "volumes"):
        yield from _reference(path, volume)
        for inner, source in _items(volume.get("projected"), f"{path}.projected.sources"):
            yield from _reference(inner, source)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(containers_in(spec, field)):
            for path, source in _items(container, f"{field}[{index}].envFrom"):
                yield from _reference(path, source)
            for path, variable in _items(container, f"{field}[{index}].env"):
                yield from _reference(f"{path}.valueFrom", variable.get("valueFrom"))


_FIELDS = {
    "configMap": CONFIG_MAP,
    "configMapRef": CONFIG_MAP,
    "configMapKeyRef": CONFIG_MAP,
    "secret": SECRET,
    "secretRef": SECRET,
    "secretKeyRef": SECRET,
}


def _reference(path: str, value: Any) -> Iterator[Reference]:
    for field, resource in _FIELDS.items():
        inner = value.get(field) if isinstance(value, dict) else None
        if isinstance(inner, dict) and not inner.get("optional"):
            name = inner.get("name") or inner.get("secretName")
            if isinstance(name, str):
                yield Reference(f"{path}.{field}", resource, name)


def _items(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list, with their paths; ``path`` ends with the name of the list in ``value``."""
    items = value.get(path.rpartition(".")[2]) if isinstance(value, Mapping) else None
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield f"{path}[{index}]", item
