"""One request to the API server, as data. Its text is the prefix of every error about it."""

from typing import NamedTuple

from yarl import URL

from trainmaster.core.ids import Resource
from trainmaster.kube.answer import name_in

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""PartialObjectMetadata: an object without spec and status, if the server supports it."""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""The same of a list."""


class Call(NamedTuple):
    verb: str
    method: str
    url: URL
    resource: Resource
    namespace: str
    name: str = ""
    body: bytes | None = None
    content_type: str = ""
    accept: str = JSON
    max_bytes: int = 0
    """The longest answer that is read; 0 for any."""

    def __str__(self) -> str:
        name = self.name or name_in(self.body or b"")
        where = "/".join(filter(None, (self.namespace, name)))
        return f"{self.verb} {self.resource} {where}".rstrip()
