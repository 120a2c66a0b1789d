"""Namespaces take turns: a tenant with many jobs does not make the jobs of another tenant wait."""

from collections import OrderedDict
from collections.abc import Container, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """Items that wait: namespaces in turn, and in each of them its items in their order. All calls take constant time,
    but for namespaces that are skipped."""

    def __init__(self) -> None:
        self._namespaces: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, namespace: str, item: T) -> None:
        items = self._namespaces.setdefault(namespace, OrderedDict())
        self._size += item not in items
        items[item] = None

    def discard(self, namespace: str, item: T) -> None:
        items = self._namespaces.get(namespace)
        if items is None or item not in items:
            return
        del items[item]
        self._size -= 1
        if not items:
            del self._namespaces[namespace]

    def has_turn(self, skip: Container[str] = ()) -> bool:
        """Whether an item waits in a namespace that is not skipped."""
        return any(namespace not in skip for namespace in self._namespaces)

    def take(self, skip: Container[str] = ()) -> T | None:
        """The next item, which does not wait any more. Its namespace has its next turn after all others."""
        for namespace, items in self._namespaces.items():
            if namespace not in skip:
                item = next(iter(items))
                self._namespaces.move_to_end(namespace)
                self.discard(namespace, item)
                return item
        return None
