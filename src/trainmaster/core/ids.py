"""Identifiers of API resources and of objects."""

from typing import NamedTuple

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """One resource of the Kubernetes API, e.g. ``Resource("", "v1", "pods", "Pod")``."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        """A CustomResourceDefinition has it: an API server that has just started may not serve it yet."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Key(NamedTuple):
    """Namespace and name of an object. The uid distinguishes objects that had the same key one after the other."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


POD = Resource("", "v1", "pods", "Pod")
SERVICE = Resource("", "v1", "services", "Service")
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
NODE = Resource("", "v1", "nodes", "Node")
JOB = Resource("batch", "v1", "jobs", "Job")
NAMESPACE = Resource("", "v1", "namespaces", "Namespace")
EVENT = Resource("", "v1", "events", "Event")
LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease")
