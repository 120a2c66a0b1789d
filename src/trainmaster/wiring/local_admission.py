"""Admission of local mode: the review of our webhook, called in process."""

from collections.abc import Sequence

import msgspec

from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.local.apiserver.objects.admission import Admission, Review, Write
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.webhook.review import GroupVersionKind, Operation, Request, cause_of
from trainmaster.webhook.verdict import mutation, verdict


def local_admission(kinds: Sequence[ResourceKinds]) -> Admission:
    """Reviews the jobs of these kinds; other objects are stored as they are."""
    by_resource = {resource: each for each in kinds for resource in each.resources}

    def mutate(write: Write) -> list[Operation]:
        kinds = by_resource.get(write.resource)
        if kinds is None:
            return []
        request = _request(write)
        return mutation(kinds.of(request.object), request)

    def validate(write: Write) -> Review:
        kinds = by_resource.get(write.resource)
        if kinds is None:
            return Review()
        request = _request(write)
        found = verdict(kinds.of(request.object), request)
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
