"""What every verb works on."""

import datetime
from collections.abc import Callable

import msgspec

from trainmaster.local.apiserver.objects.admission import Admission
from trainmaster.local.apiserver.objects.catalog import Catalog
from trainmaster.local.apiserver.objects.resource import Served
from trainmaster.local.apiserver.store.store import Place, Store


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class State(msgspec.Struct, frozen=True):
    store: Store
    catalog: Catalog
    now: Callable[[], datetime.datetime] = utc_now
    admission: Admission = Admission()

    def timestamp(self) -> str:
        return timestamp(self.now())


class Target(msgspec.Struct, frozen=True):
    """The resource that a request is about, and where in it."""

    served: Served
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def place(self) -> Place:
        return Place(str(self.served.resource), self.namespace, self.name)

    def named(self, name: str) -> "Target":
        return Target(self.served, self.namespace, name, self.subresource)


def timestamp(moment: datetime.datetime) -> str:
    """As Kubernetes writes times: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
