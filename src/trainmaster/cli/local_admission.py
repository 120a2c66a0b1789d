"""Admission of local mode: the review of our webhook, called in process."""

from collections.abc import Sequence
from typing import Any

import msgspec

from trainmaster.kinds.base import Kind
from trainmaster.local.apiserver.objects.admission import Admission, Review, Write
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.webhook.review import GroupVersionKind, Operation, Request, cause_of
from trainmaster.webhook.verdict import mutation, verdict


def local_admission(kinds: Sequence[Kind[Any]]) -> Admission:
    """Reviews the jobs of these kinds; other objects are stored as they are."""
    by_resource = {kind.resource: kind for kind in kinds}

    def mutate(write: Write) -> list[Operation]:
        kind = by_resource.get(write.resource)
        return mutation(kind, _request(write)) if kind else []

    def validate(write: Write) -> Review:
        kind = by_resource.get(write.resource)
        if kind is None:
            return Review()
        found = verdict(kind, _request(write))
        return Review([Cause(**{"field": "", **cause_of(error)}) for error in found.errors], found.warnings)

    return Admission(mutate, validate)


def _request(write: Write) -> Request:
    resource, meta = write.resource, write.new["metadata"]
    return Request(
        uid="",
        kind=GroupVersionKind(resource.group, resource.version, resource.kind),
        operation="CREATE" if write.old is None else "UPDATE",
        name=meta.get("name", ""),
        namespace=meta.get("namespace", ""),
        object=msgspec.Raw(msgspec.json.encode(write.new)),
        old_object=msgspec.Raw(msgspec.json.encode(write.old)),
    )
