"""What all wire types share: camelCase names, frozen data, and the metadata of jobs."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from trainmaster.core.template import Port, TemplatePart, VolumePart


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all wire types: unset fields are not written, unknown fields are ignored."""


class ObjectMeta(Wire, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


INT32_MAX = 2**31 - 1

# The bounds of these are for the API server alone: a job that was stored under another definition is still read.
Deadline = Annotated[int, msgspec.Meta(ge=1, extra={"openapi": {"maximum": INT32_MAX}})]
"""Seconds. Other operators allowed more; no date is computed from it (lifecycle/deadline.py)."""
Number = Annotated[int, msgspec.Meta(extra={"openapi": {"minimum": 0, "maximum": INT32_MAX}})]
"""A count, or an index, in a status."""
ExitCode = Annotated[int, msgspec.Meta(extra={"openapi": {"minimum": -INT32_MAX - 1, "maximum": INT32_MAX}})]
"""The exit code of a container, as the kubelet reports it."""
Generation = Annotated[int, msgspec.Meta(extra={"openapi": {"minimum": 0, "maximum": 2**53 - 1}})]
"""The generation of an object. The API server computes with bounds as floats, and refuses larger ones."""

Template = Annotated[dict[str, Any], msgspec.Meta(extra={"schema": TemplatePart})]
"""A PodTemplateSpec as the user wrote it; the schema has only the fields that we read."""

Anything = Annotated[Any, msgspec.Meta(extra={"openapi": {"x-kubernetes-preserve-unknown-fields": True}})]
"""Any JSON value."""

Ports = Annotated[dict[str, dict[str, Port]], msgspec.Meta(extra={"openapi": {"x-kubernetes-map-type": "atomic"}})]
"""Ports of replicas that share a network: by replica, then by the name of the port in its template. The operator alone
writes them; field by field the managed fields would be as long again."""

Volumes = Annotated[list[dict[str, Any]], msgspec.Meta(extra={"schema": list[VolumePart]})]
"""Volumes as the user wrote them, like a template."""

_MANAGER = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/[-._A-Za-z0-9]+)?$"
ManagedBy = Annotated[str, msgspec.Meta(max_length=63, extra={"pattern": _MANAGER})]
"""The controller of a job, as ``spec.managedBy`` of Kubernetes' Job: a name with a domain, for example
``kueue.x-k8s.io/multikueue``. It cannot change after creation. We ignore jobs with any other name than ours."""
