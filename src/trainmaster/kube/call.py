"""One request to the API server, as data. As text it is the beginning of every error about it."""

from typing import NamedTuple

from yarl import URL

from trainmaster.core.ids import Resource
from trainmaster.kube.answer import name_in


class Call(NamedTuple):
    verb: str
    method: str
    url: URL
    resource: Resource
    namespace: str
    name: str = ""
    body: bytes | None = None
    content_type: str = ""

    def __str__(self) -> str:
        name = self.name or name_in(self.body or b"")
        where = "/".join(filter(None, (self.namespace, name)))
        return f"{self.verb} {self.resource} {where}".rstrip()
