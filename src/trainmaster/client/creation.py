"""Creates the objects of manifests on a cluster."""

import secrets
from collections.abc import Callable, Sequence

import msgspec

from trainmaster.client.errors import Refused
from trainmaster.client.job_finder import FoundJob, JobFinder, listed
from trainmaster.client.manifest import Document, refusal
from trainmaster.client.program import free_name, suffixed
from trainmaster.core.errors import AlreadyExists, ApiError, Forbidden
from trainmaster.core.view import JOB_CODEC
from trainmaster.runtime.cluster import Written

ATTEMPTS = 5
"""Free names that are tried: others may choose the same one at the same time. After that it is a random one."""


async def create(finder: JobFinder, documents: Sequence[Document], warn: Callable[[str], object]) -> list[FoundJob]:
    """Returns the jobs. ``warn`` takes the warnings of the API server."""
    created = []
    for wanted in documents:
        document, written = await _created(finder, wanted)
        for warning in written.warnings:
            warn(f"{document.where}: {document}: {warning}")
        if document.is_job:
            created.append(await finder.get(document.resource, document.key))
    return created


async def _created(finder: JobFinder, wanted: Document) -> tuple[Document, Written]:
    """The document with the name that it got."""
    document, attempt = wanted, 0
    while True:
        try:
            body = msgspec.json.encode(document.body)
            return document, await finder.cluster.create(document.resource, document.key.namespace, body)
        except AlreadyExists as error:
            if not wanted.may_be_renamed:
                raise Refused(_exists(finder, document)) from error
        except ApiError as error:
            raise Refused(refusal(document, error)) from error
        attempt += 1
        document = wanted.named(await _another_name(finder, wanted, is_random=attempt > ATTEMPTS))


async def _another_name(finder: JobFinder, document: Document, *, is_random: bool) -> str:
    name = document.key.name
    if not is_random:
        try:
            jobs = await listed(finder.cluster, document.resource, JOB_CODEC, document.key.namespace)
            return free_name(name, {job.key.name for job in jobs})
        except Forbidden:
            pass  # who creates jobs may not always list them
    return suffixed(name, secrets.token_hex(3))


def _exists(finder: JobFinder, document: Document) -> str:
    where = f"{document.where}: {document} exists in namespace {document.key.namespace} of {finder.connection.title}"
    if not document.is_job:
        return f"{where}; rename it, or delete the other one"
    delete = f"trainmaster delete {document}{finder.connection.options_of(document.key.namespace)}"
    return f"{where}; delete it with `{delete}`, or {document.renaming}"
