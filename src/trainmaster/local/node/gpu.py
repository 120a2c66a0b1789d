"""Which pod has which GPUs of the node."""

from collections.abc import Sequence

from trainmaster.core.errors import Trainmaster


class NotEnoughGpus(Trainmaster):
    """GPUs of a pod are in use by pods that are still ending."""


class Gpus:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._by_uid: dict[str, tuple[str, ...]] = {}

    def keep(self, uid: str, names: Sequence[str]) -> None:
        """The GPUs of a pod that an earlier node started."""
        if names:
            self._by_uid[uid] = tuple(names)

    def take(self, uid: str, count: int) -> tuple[str, ...]:
        """The GPUs of a pod, until ``release``: also after a restart of its containers."""
        if not count:
            return ()
        if uid not in self._by_uid:
            taken = {name for names in self._by_uid.values() for name in names}
            free = [name for name in self.names if name not in taken]
            if len(free) < count:
                raise NotEnoughGpus(f"the pod requests {count} GPUs, and {len(free)} of {len(self.names)} are free")
            self._by_uid[uid] = tuple(free[:count])
        return self._by_uid[uid]

    def release(self, uid: str) -> None:
        self._by_uid.pop(uid, None)
