"""Creates the objects of manifests on a cluster."""

from collections.abc import Callable, Sequence

import msgspec

from trainmaster.client.errors import Refused
from trainmaster.client.job_finder import FoundJob, JobFinder
from trainmaster.client.manifest import Document, refusal
from trainmaster.core.errors import AlreadyExists, ApiError


async def create(finder: JobFinder, documents: Sequence[Document], warn: Callable[[str], object]) -> list[FoundJob]:
    """Returns the jobs. ``warn`` takes the warnings of the API server."""
    created = []
    for document in documents:
        body = msgspec.json.encode(document.body)
        try:
            written = await finder.cluster.create(document.resource, document.key.namespace, body)
        except AlreadyExists as error:
            raise Refused(
                f"{document.where}: {document} exists in namespace {document.key.namespace} of "
                f"{finder.connection.title}; rename it, or delete the other one"
            ) from error
        except ApiError as error:
            raise Refused(refusal(document, error)) from error
        for warning in written.warnings:
            warn(f"{document.where}: {document}: {warning}")
        if document.is_job:
            created.append(await finder.get(document.resource, document.key))
    return created
