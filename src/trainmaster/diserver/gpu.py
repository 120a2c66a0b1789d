"""GPUs per node, to split a learner over pods: ``--gpu-alloc-policy simple``."""

import asyncio

import msgspec
import structlog

from trainmaster.core.errors import Forbidden, Trainmaster
from trainmaster.core.ids import NODE
from trainmaster.diserver.cache import retry_later
from trainmaster.kinds.dijob.declare import usual_gpus
from trainmaster.runtime.cluster import Cluster

KEPT_SECONDS = 10.0
PAGE = 500

log = structlog.get_logger(__name__)


class _Spec(msgspec.Struct):
    unschedulable: bool = False


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    allocatable: dict[str, str] = {}
    conditions: list[_Condition] = []


class _Node(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def gpus(self) -> int:
        """Allocatable GPUs; 0 if the node is unschedulable or not ready."""
        is_ready = any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)
        number = self.status.allocatable.get("nvidia.com/gpu", "0")
        return int(number) if is_ready and not self.spec.unschedulable and number.isdecimal() else 0


class _ListMeta(msgspec.Struct):
    cursor: str = msgspec.field(name="continue", default="")


class _Nodes(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[_Node] = []


class Nodes:
    """Lists nodes only if a learner requests several GPUs. The result is cached for KEPT_SECONDS."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._until = 0.0
        self._usual = 0

    async def usual_gpus(self) -> int:
        """The most frequent number of GPUs among usable nodes that have any; 0 if it is unknown."""
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self._usual = await self._look()
            self._until = now + KEPT_SECONDS
        return self._usual

    async def _look(self) -> int:
        gpus: list[int] = []
        cursor = ""
        while True:
            try:
                page = msgspec.json.decode(await self._cluster.list(NODE, limit=PAGE, cursor=cursor), type=_Nodes)
            except Forbidden as error:
                log.warning("GPUs are not split over nodes: listing nodes is forbidden", because=str(error))
                return 0
            except Trainmaster as error:
                raise retry_later(error) from error
            gpus += [node.gpus for node in page.items]
            cursor = page.metadata.cursor
            if not cursor:
                return usual_gpus(gpus)
