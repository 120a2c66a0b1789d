"""Which containers of a pod train. All others are side-cars: what they do says nothing about the training."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Self

import msgspec

from trainmaster.core.template import container_names
from trainmaster.core.view import PodView


class Training(msgspec.Struct, frozen=True):
    """Of the pods of one role. Containers with the name ``main`` train; a star stands for any text. If a pod has none,
    the containers of its template train: others were added at admission, such as the proxies of a service mesh."""

    main: str = ""
    template: frozenset[str] = frozenset()

    @classmethod
    def of(cls, main: str, template: Mapping[str, Any] | None) -> Self:
        return cls(main, container_names(template or {}))

    def containers(self, names: Iterable[str]) -> frozenset[str]:
        """Those that train. A pod may be older than the template: if no name is in both, all its containers train."""
        found = frozenset(names)
        return frozenset(name for name in found if fnmatchcase(name, self.main)) or found & self.template or found

    def takes_part(self, pod: PodView, container: str) -> bool:
        return container in self.containers(c.name for c in pod.containers)

    def is_ready(self, pod: PodView) -> bool:
        """True, too, if only side-cars keep the pod from being ready."""
        unready = frozenset(pod.unready)
        return pod.is_ready or bool(unready and unready.isdisjoint(self.containers(c.name for c in pod.containers)))
