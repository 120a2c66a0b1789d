"""What every wire type shares: camelCase names, frozen data, and the metadata that jobs are read with."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from trainmaster.core.template import Port, TemplatePart, VolumePart


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all wire types: what is not set is not written, what is unknown is ignored."""


class ObjectMeta(Wire, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


Template = Annotated[dict[str, Any], msgspec.Meta(extra={"schema": TemplatePart})]
"""A PodTemplateSpec as its user wrote it; the schema names only the fields that we read."""

Ports = dict[str, dict[str, Port]]
"""Of the replicas that share a network: by replica, and by the port that its template declares, the port it has."""

Volumes = Annotated[list[dict[str, Any]], msgspec.Meta(extra={"schema": list[VolumePart]})]
"""Volumes as their user wrote them, like a template."""

_MANAGER = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/[-._A-Za-z0-9]+)?$"
ManagedBy = Annotated[str, msgspec.Meta(max_length=63, extra={"pattern": _MANAGER})]
"""Who drives a job, as in Kubernetes' own Job: a name with a domain, say ``kueue.x-k8s.io/multikueue``. It is settled
when the job is created. The API server looks at its form; for us any other name than ours means somebody else."""
